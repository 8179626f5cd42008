-- "A100 kernels transferred": of the tasks with code on both GPUs, how many texts are identical.
WITH released AS (
    FROM claimed_speedups WHERE source = 'cuda-l1' AND baseline = 'eager' AND released
)
SELECT
    other.gpu,
    count(*) FILTER (WHERE other.kernel_id = a100.kernel_id) AS identical,
    count(*) AS code_on_both
FROM released AS other
INNER JOIN released AS a100 ON a100.task_id = other.task_id AND a100.gpu = 'A100'
WHERE other.gpu <> 'A100'
GROUP BY other.gpu
ORDER BY list_position(['H100', 'RTX 3090', 'L40', 'H20'], other.gpu)
