-- Speedups over eager of the kernels for level3/35, 41 and 42, by device, precision and clock, beside the
-- claims for the H100. All sessions are listed. ranks is false for disturbed sessions, for both
-- sessions of a surprising win that the second does not confirm, and where the baseline is too short for the clock.
SELECT
    names.task,
    devices."name" AS device,
    evaluations."precision",
    sessions.clock,
    round(claims.speedup, 2) AS claimed,
    round(sessions.speedup, 2) AS speedup,
    round(sessions.speedup_low, 2) AS low,
    round(sessions.speedup_high, 2) AS high,
    NOT sessions.disturbed AND NOT sessions.unresolved AS ranks
FROM session_speedups AS sessions
INNER JOIN evaluations ON evaluations.evaluation_id = sessions.evaluation_id
INNER JOIN devices ON devices.device_id = evaluations.device_id
INNER JOIN task_names AS names ON names.task_id = evaluations.task_id
INNER JOIN claimed_speedups AS claims
    ON claims.kernel_id = sessions.kernel_id AND claims.task_id = evaluations.task_id
WHERE
    names.task IN ('level3/35', 'level3/41', 'level3/42')
    AND sessions.baseline = 'eager'
    AND claims.baseline = 'eager' AND claims.gpu = 'H100' AND claims.released
ORDER BY task, device DESC, evaluations."precision" DESC, sessions.clock, sessions.measured_at
