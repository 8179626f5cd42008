-- Licences of the tasks and kernels in a dataset. `picked` (task_id, kernel_ids) is registered.
WITH picked_kernels AS (
    SELECT DISTINCT unnest(kernel_ids) AS kernel_id
    FROM picked
)
SELECT what, licence, count(*) AS texts
FROM (
    SELECT 'tasks' AS what, coalesce(tasks.license, 'not stated') AS licence
    FROM tasks
    SEMI JOIN picked ON picked.task_id = tasks.task_id
    UNION ALL
    SELECT 'kernels' AS what, coalesce(kernels.license, 'not stated') AS licence
    FROM kernels
    SEMI JOIN picked_kernels ON picked_kernels.kernel_id = kernels.kernel_id
)
GROUP BY what, licence
ORDER BY what DESC, texts DESC, licence
