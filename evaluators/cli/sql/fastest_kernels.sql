-- One row per kernel that is ranked on the device of this name, the fastest over eager first; of all
-- kernels or of the one with the id `kernel`. evaluation_id is the newest behind its speedup.
-- Parameters: device, kernel (or NULL), top.
SELECT
    kernel_speedups.kernel_id,
    kernel_speedups.task_id,
    kernel_speedups.workload_id,
    kernel_speedups.evaluation_id,
    workloads.axes,
    false AS compiles,
    CAST(NULL AS VARCHAR) AS "precision",
    CAST(NULL AS VARCHAR) AS protocol
FROM kernel_speedups
INNER JOIN workloads ON workloads.workload_id = kernel_speedups.workload_id
WHERE
    kernel_speedups.device = $device
    AND kernel_speedups.baseline = 'eager'
    AND kernel_speedups.ranked
    AND ($kernel IS NULL OR kernel_speedups.kernel_id = $kernel)
ORDER BY kernel_speedups.speedup DESC, kernel_speedups.kernel_id
LIMIT $top
