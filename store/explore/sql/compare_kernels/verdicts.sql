-- Verdicts
SELECT
    task_names.task, outcomes.device,
    any_value(outcomes.status) FILTER (WHERE outcomes.kernel_id = $a) AS "A",
    any_value(outcomes.status) FILTER (WHERE outcomes.kernel_id = $b) AS "B", outcomes.task_id
FROM outcomes
LEFT JOIN task_names ON task_names.task_id = outcomes.task_id
WHERE outcomes.kernel_id IN ($a, $b)
GROUP BY ALL
ORDER BY task, outcomes.device, outcomes.task_id
