-- One row per session that counts (speedups) of a kernel with several, over eager: its logarithm and error.
-- Sessions of one `kernel` have the same kernel, task, workload, device model, clock, precision,
-- number of threads, evaluator and version, as in pooled_speedups. Each session has one row however
-- many baselines it timed, because its speedups share the kernel's samples. Both sessions of a
-- confirmed win are here: without the higher one, sessions would seem to differ by less.
SELECT
    device, clock, evaluator, evaluator_version,
    hash(kernel_id, task_id, workload_id, "precision", threads) AS kernel,
    ln(speedup) AS ratio,
    error
FROM speedups
WHERE baseline = 'eager' AND correct AND NOT disturbed AND NOT unresolved
QUALIFY count(*) OVER (
    PARTITION BY
        device, clock, evaluator, evaluator_version, kernel_id, task_id, workload_id, "precision",
        threads
) > 1
ORDER BY device, clock, evaluator, evaluator_version, kernel, measured_at, session_id
