-- An attempt with a kernel and a task.
SELECT
    generation_id, kernel_id, task_id, coalesce(trajectory_id, generation_id) AS session_id,
    coalesce(turn, 0) AS turn, parent_generation_id
FROM generations
WHERE generation_id = $generation_id AND kernel_id IS NOT NULL AND task_id IS NOT NULL
