-- One row per kernel, task, workload, device, baseline, clock and precision: the newest session that counts.
-- A session counts if the kernel is correct, neither of its two arms is disturbed, its baseline is not
-- too short for the clock (unresolved), and its evaluation is not contended (speedups). Of two
-- sessions of an evaluation that confirm a win, the lower one counts. The view takes the newest session and not the best one, so that
-- repeating a measurement until it is lucky gains nothing. Kernels that compute another function
-- than the task are not left out; kernel_speedups marks them. The order is one struct, so that
-- DuckDB can compute a maximum per group and need not sort.
SELECT * EXCLUDE (judged_at)
FROM speedups
WHERE correct AND NOT disturbed AND NOT unresolved
QUALIFY row_number() OVER (
    PARTITION BY kernel_id, task_id, workload_id, device, baseline, clock, "precision"
    ORDER BY
        {
            'measured_at': CASE WHEN confirmed THEN judged_at ELSE measured_at END,
            'slowness': CASE WHEN confirmed THEN -speedup ELSE 0 END,
            'session_id': session_id
        } DESC
) = 1
