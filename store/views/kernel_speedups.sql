-- One row per kernel, task, workload, device and baseline: the newest session that may be ranked.
SELECT newest_speedups.*, quarantined.kernel_id IS NOT NULL AS quarantined
FROM newest_speedups
INNER JOIN default_clocks
    ON
        default_clocks.task_id = newest_speedups.task_id
        AND default_clocks.workload_id = newest_speedups.workload_id
        AND default_clocks.device = newest_speedups.device
        AND default_clocks.baseline = newest_speedups.baseline
        AND default_clocks.clock = newest_speedups.clock
LEFT JOIN quarantined ON quarantined.kernel_id = newest_speedups.kernel_id
