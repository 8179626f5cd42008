-- The two runs
SELECT
    CASE WHEN runs.run_id = $a THEN 'A' ELSE 'B' END AS side,
    runs.name || ' ' || left(runs.run_id, 8) AS run, runs.kind, runs.started_at,
    count(generations.generation_id) AS attempts, count(DISTINCT generations.kernel_id) AS kernels,
    count(DISTINCT generations.task_id) AS tasks, max(generations.step) AS last_step, runs.run_id
FROM runs
LEFT JOIN generations ON generations.run_id = runs.run_id
WHERE runs.run_id IN ($a, $b)
GROUP BY ALL
ORDER BY side
