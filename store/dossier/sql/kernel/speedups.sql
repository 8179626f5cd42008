-- Its measured speedups with their intervals. ranks_nothing says why a session is in no ranking.
--
-- key columns: device, baseline, clock, speedup, speedup_low, speedup_high, samples, ranks_nothing
SELECT
    speedups.device,
    threads,
    baseline,
    speedups.clock,
    "precision",
    kernel_ms,
    baseline_ms,
    speedup,
    speedup_low,
    speedup_high,
    n AS samples,
    disturbed,
    unranked.reason AS ranks_nothing,
    speedups.measured_at
FROM speedups
LEFT JOIN (SELECT * FROM unranked_sessions WHERE kernel_id = $kernel_id) AS unranked
    ON
        unranked.session_id = speedups.session_id
        AND unranked.clock = speedups.clock
        AND unranked.task_id = speedups.task_id
WHERE speedups.kernel_id = $kernel_id
ORDER BY speedups.measured_at DESC, baseline, speedups.clock
