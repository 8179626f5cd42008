-- Kernels that are another function than their task's module; none where they are included.
SELECT kernel_id, task_id
FROM nonequivalent
WHERE NOT $included
