-- One row per kernel and task that only other namespaces than $namespace attempted.
-- Where this lake attempted the task with the kernel, its own attempts decide. The namespaces of
-- another lake are other ones, whatever their names.
SELECT task_id, kernel_id
FROM generations
WHERE task_id IS NOT NULL AND kernel_id IS NOT NULL
GROUP BY task_id, kernel_id
HAVING NOT coalesce(
    bool_or(namespace IS NULL OR namespace = $namespace) FILTER (WHERE origin IS NULL),
    bool_or(namespace IS NULL)
)
