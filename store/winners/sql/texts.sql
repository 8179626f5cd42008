-- The code of the winners and of their tasks. Table: _winners.
SELECT 'task' AS what, tasks.task_id AS id, tasks.code,
    NULL AS path, NULL AS entry_point, NULL AS other_files
FROM tasks
SEMI JOIN _winners ON _winners.task_id = tasks.task_id
UNION ALL
SELECT 'kernel', kernels.kernel_id, kernels.code,
    kernels.path, kernels.entry_point, kernels.other_files
FROM kernels
SEMI JOIN _winners ON _winners.kernel_id = kernels.kernel_id
