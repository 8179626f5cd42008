-- Its measured speedups with their intervals.
SELECT
    device,
    baseline,
    clock,
    "precision",
    kernel_ms,
    baseline_ms,
    speedup,
    speedup_low,
    speedup_high,
    n AS samples,
    noisy,
    measured_at
FROM speedups
WHERE kernel_id = $kernel_id
ORDER BY measured_at DESC, baseline, clock
