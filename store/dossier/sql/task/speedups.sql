-- What was measured, best lower bound first; noisy sessions rank nothing.
SELECT
    left(kernel_id, 12) AS kernel,
    device,
    baseline,
    clock,
    round(speedup, 3) AS speedup,
    round(speedup_low, 3) AS low,
    round(speedup_high, 3) AS high,
    n AS samples,
    noisy
FROM speedups
WHERE task_id = $task_id
ORDER BY speedup_low DESC, kernel_id, baseline, clock
LIMIT 20
