-- The device on which most of the kernels in `wanted` (generation_id) were judged for their task.
-- A tie goes to the one where a verdict is newest, then by name. Pulled verdicts of kernels that were
-- judged here on another device do not count (outcomes.elsewhere).
SELECT outcomes.device
FROM (
    SELECT kernel_id, task_id, device, last_judged_at FROM outcomes WHERE NOT elsewhere
    UNION ALL
    SELECT kernel_id, task_id, device, last_judged_at FROM training_outcomes
) AS outcomes
SEMI JOIN (
    SELECT DISTINCT generations.kernel_id, generations.task_id
    FROM generations
    SEMI JOIN wanted ON wanted.generation_id = generations.generation_id
) AS made
    ON made.kernel_id = outcomes.kernel_id AND made.task_id = outcomes.task_id
GROUP BY outcomes.device
ORDER BY
    count(DISTINCT outcomes.kernel_id) DESC, max(outcomes.last_judged_at) DESC, outcomes.device
LIMIT 1
