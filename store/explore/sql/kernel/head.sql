-- The kernel with its features, its author and its standing
WITH described AS (
    SELECT "language", techniques, code_lines
    FROM features
    WHERE kernel_id = $kernel
),
written AS (
    SELECT policy, task_id, created_at
    FROM authors
    WHERE kernel_id = $kernel
)
SELECT
    kernels.kernel_id, kernels.license, described."language", described.techniques,
    described.code_lines,
    written.policy, written.task_id, task_names.task, task_names.title,
    (SELECT any_value(reason) FROM withheld WHERE kernel_id = $kernel) AS withheld
FROM kernels
LEFT JOIN described ON true
LEFT JOIN written ON true
LEFT JOIN task_names ON task_names.task_id = written.task_id
WHERE kernels.kernel_id = $kernel
ORDER BY written.created_at, written.task_id
