-- One row per kernel, task, workload, device and baseline: the newest rankable session.
-- ranked says whether the kernel takes part in rankings: it is neither quarantined nor
-- nonequivalent (nonequivalent).
SELECT
    newest_speedups.*,
    quarantined.kernel_id IS NOT NULL AS quarantined,
    nonequivalent.kernel_id IS NULL AS equivalent,
    quarantined.kernel_id IS NULL AND nonequivalent.kernel_id IS NULL AS ranked
FROM newest_speedups
INNER JOIN default_clocks
    ON
        default_clocks.task_id = newest_speedups.task_id
        AND default_clocks.workload_id = newest_speedups.workload_id
        AND default_clocks.device = newest_speedups.device
        AND default_clocks.baseline = newest_speedups.baseline
        AND default_clocks.clock = newest_speedups.clock
        AND default_clocks."precision" = newest_speedups."precision"
LEFT JOIN quarantined ON quarantined.kernel_id = newest_speedups.kernel_id
LEFT JOIN nonequivalent
    ON
        nonequivalent.kernel_id = newest_speedups.kernel_id
        AND nonequivalent.task_id = newest_speedups.task_id
