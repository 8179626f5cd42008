-- Speedups
-- One row for each timing session, baseline and clock. Noisy sessions rank nothing.
SELECT
    baseline, speedup, speedup_low, speedup_high, clock, kernel_ms, baseline_ms, device,
    workloads.name AS workload,
    n AS samples, noisy, status, speedups."precision", measured_at
FROM speedups
LEFT JOIN workloads ON workloads.workload_id = speedups.workload_id
WHERE speedups.kernel_id = $kernel
    AND speedups.device = $device
    AND speedups.clock = $clock
    AND speedups."precision" = $precision
ORDER BY measured_at DESC, clock <> 'gpu', clock, baseline <> 'eager', baseline,
    device, speedups.session_id
