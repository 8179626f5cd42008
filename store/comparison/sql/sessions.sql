-- One row per side ('a' or 'b') and timing session that counts for it, by author, host or device.
-- The sessions are those of pooled_speedups. A comparison of devices fixes no device.
SELECT
    CASE
        WHEN $by = 'author' THEN attempted.of_side
        WHEN $a = CASE $by WHEN 'host' THEN devices.host ELSE speedups.device END THEN 'a'
        WHEN $b = CASE $by WHEN 'host' THEN devices.host ELSE speedups.device END THEN 'b'
    END AS side,
    speedups.task_id, speedups.workload_id, speedups.kernel_id,
    CASE WHEN $by <> 'device' THEN speedups.device END AS device,
    speedups.baseline, speedups.clock, speedups."precision", speedups.evaluator,
    speedups.evaluator_version,
    CASE WHEN $by <> 'device' THEN speedups.threads END AS threads,
    speedups.speedup, speedups.kernel_ms, speedups.error, speedups.spread, speedups.measured_at
FROM speedups
INNER JOIN devices ON devices.device_id = speedups.device_id
LEFT JOIN (SELECT DISTINCT side AS of_side, task_id, kernel_id FROM _attempted) AS attempted
    ON
        attempted.kernel_id = speedups.kernel_id
        AND attempted.task_id = speedups.task_id
WHERE side IS NOT NULL AND speedups.correct AND NOT speedups.disturbed AND NOT speedups.unresolved
