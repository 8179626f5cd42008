-- What was measured, best lower bound first. ranks_nothing says why a session is in no ranking.
-- Kernels that compute another function are left out.
SELECT
    left(speedups.kernel_id, 12) AS kernel,
    device,
    baseline,
    speedups.clock,
    round(speedup, 3) AS speedup,
    round(speedup_low, 3) AS low,
    round(speedup_high, 3) AS high,
    n AS samples,
    noisy,
    unranked.reason AS ranks_nothing
FROM speedups
LEFT JOIN (SELECT * FROM unranked_sessions WHERE task_id = $task_id) AS unranked
    ON
        unranked.session_id = speedups.session_id
        AND unranked.clock = speedups.clock
        AND unranked.kernel_id = speedups.kernel_id
ANTI JOIN nonequivalent
    ON nonequivalent.kernel_id = speedups.kernel_id AND nonequivalent.task_id = speedups.task_id
WHERE speedups.task_id = $task_id
ORDER BY speedup_low DESC, speedups.kernel_id, baseline, speedups.clock
LIMIT 20
