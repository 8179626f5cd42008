-- What was measured, best lower bound first; noisy sessions rank nothing. Kernels that compute
-- another function are left out.
SELECT
    left(speedups.kernel_id, 12) AS kernel,
    device,
    baseline,
    clock,
    round(speedup, 3) AS speedup,
    round(speedup_low, 3) AS low,
    round(speedup_high, 3) AS high,
    n AS samples,
    noisy
FROM speedups
ANTI JOIN nonequivalent
    ON nonequivalent.kernel_id = speedups.kernel_id AND nonequivalent.task_id = speedups.task_id
WHERE speedups.task_id = $task_id
ORDER BY speedup_low DESC, speedups.kernel_id, baseline, clock
LIMIT 20
