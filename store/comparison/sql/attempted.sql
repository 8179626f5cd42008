-- One row per attempt of two authors at a task; with $attempts, only the first ones at each task.
-- attempts counts those of the author at the task.
SELECT
    CASE WHEN policy_id = $a THEN 'a' ELSE 'b' END AS side,
    task_id,
    kernel_id,
    count(*) OVER (PARTITION BY policy_id, task_id) AS attempts
FROM generations
WHERE policy_id IN ($a, $b)
QUALIFY $attempts IS NULL OR row_number() OVER (
    PARTITION BY policy_id, task_id ORDER BY created_at, generation_id
) <= $attempts
