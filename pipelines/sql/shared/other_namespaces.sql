-- One row per kernel and task that only other namespaces than $namespace attempted.
SELECT task_id, kernel_id
FROM generations
WHERE task_id IS NOT NULL AND kernel_id IS NOT NULL
GROUP BY task_id, kernel_id
HAVING NOT bool_or(namespace IS NULL OR namespace = $namespace)
