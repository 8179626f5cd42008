-- Licences of the tasks and kernels in a dataset. `picked` and `picked_kernels` are registered.
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
