-- Speedups
-- One row for each timing session, baseline and clock. ranks_nothing says why a session is in no
-- ranking, such as that the kernel computes another function than the task.
SELECT
    baseline, speedup, speedup_low, speedup_high, unranked.reason AS ranks_nothing,
    speedups.clock, kernel_ms, baseline_ms, speedups.device, threads,
    workloads.name AS workload,
    n AS samples, disturbed, status, speedups."precision", speedups.measured_at
FROM speedups
LEFT JOIN (SELECT * FROM unranked_sessions WHERE kernel_id = $kernel) AS unranked
    ON unranked.session_id = speedups.session_id AND unranked.clock = speedups.clock
        AND unranked.task_id = speedups.task_id
LEFT JOIN workloads ON workloads.workload_id = speedups.workload_id
WHERE speedups.kernel_id = $kernel
    AND speedups.device = $device
    AND speedups.clock = $clock
    AND speedups."precision" = $precision
ORDER BY speedups.measured_at DESC, speedups.clock <> 'gpu', speedups.clock,
    baseline <> 'eager', baseline, speedups.device, speedups.session_id
