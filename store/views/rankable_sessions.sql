-- One row of speedups that may be ranked: correct, not noisy, by the clock that ranks there.
SELECT speedups.*, quarantined.kernel_id IS NOT NULL AS quarantined
FROM speedups
INNER JOIN default_clocks
    ON
        default_clocks.task_id = speedups.task_id
        AND default_clocks.workload_id = speedups.workload_id
        AND default_clocks.device = speedups.device
        AND default_clocks.baseline = speedups.baseline
        AND default_clocks.clock = speedups.clock
LEFT JOIN quarantined ON quarantined.kernel_id = speedups.kernel_id
WHERE speedups.correct AND NOT speedups.noisy
