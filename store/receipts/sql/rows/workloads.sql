-- Input settings that a kernel was judged at.
FROM workloads
WHERE
    workload_id IN (
        SELECT workload_id
        FROM evaluations
        WHERE kernel_id = $kernel
    )
ORDER BY workload_id
