-- The kernel with its features, and its author
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
    written.policy, written.task_id, task_names.task, task_names.title
FROM kernels
LEFT JOIN described ON true
LEFT JOIN written ON true
LEFT JOIN task_names ON task_names.task_id = written.task_id
WHERE kernels.kernel_id = $kernel
ORDER BY written.created_at, written.task_id
