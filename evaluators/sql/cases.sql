-- Texts of the kernels and tasks to judge; `wanted` is a registered table of kernel_id, task_id,
-- workload_id and axes with the order of judging in `position`.
SELECT
    wanted.kernel_id,
    wanted.task_id,
    wanted.workload_id,
    wanted.axes,
    kernels.code,
    kernels.path,
    kernels.entry_point,
    kernels.other_files,
    tasks.code AS task_code
FROM wanted
INNER JOIN kernels ON kernels.kernel_id = wanted.kernel_id
INNER JOIN tasks ON tasks.task_id = wanted.task_id
ORDER BY wanted.position
