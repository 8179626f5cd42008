-- The rows of _candidates with the licenses of their texts, where one that forbids it, or none, keeps
-- a kernel back. Tables: _candidates, _licenses (store/hub/sql/licenses.sql), _refused.
WITH permitted AS (
    SELECT "table", id, license
    FROM _licenses
    WHERE license IS NOT NULL AND license NOT IN (SELECT license FROM _refused)
)
SELECT
    candidates.* REPLACE (
        coalesce(of_kernel.license, candidates.license) AS license,
        coalesce(of_task.license, candidates.task_license) AS task_license,
        coalesce(
            candidates.left_out,
            CASE
                WHEN of_kernel.id IS NULL THEN 'no license that permits redistribution'
                WHEN of_task.id IS NULL THEN 'a task without a license that permits redistribution'
            END
        ) AS left_out
    )
FROM _candidates AS candidates
LEFT JOIN permitted AS of_kernel
    ON of_kernel."table" = 'kernels' AND of_kernel.id = candidates.kernel_id
LEFT JOIN permitted AS of_task
    ON of_task."table" = 'tasks' AND of_task.id = candidates.task_id
