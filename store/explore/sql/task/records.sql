-- Records
-- Each session that raised the best speedup of the task, by the lower end of its interval.
SELECT
    measured_at, speedup, speedup_low, speedup_high, policy, kernel_id, previous_low, device,
    baseline, clock, "precision", workload
FROM "history"
WHERE task_id = $task
    AND device = $device
    AND baseline = $baseline
    AND clock = $clock
    AND "precision" = $precision
ORDER BY measured_at, device, baseline, workload, kernel_id
