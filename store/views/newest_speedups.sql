-- One row per kernel, task, workload, device, baseline, clock and precision: the newest session that counts.
-- A session counts if the kernel is correct, neither of its two arms is noisy, and its evaluation is
-- not contended (speedups). The view takes the newest session and not the best one, so that
-- repeating a measurement until it is lucky gains nothing. Kernels that compute another function
-- than the task are not left out; kernel_speedups marks them. The order is one struct, so that
-- DuckDB can compute a maximum per group and need not sort.
SELECT *
FROM speedups
WHERE correct AND NOT noisy
QUALIFY row_number() OVER (
    PARTITION BY kernel_id, task_id, workload_id, device, baseline, clock, "precision"
    ORDER BY {'measured_at': measured_at, 'session_id': session_id} DESC
) = 1
