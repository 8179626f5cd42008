-- One row per kernel, task, workload, device and baseline: its speedup, pooled over rankable sessions.
-- ranked says whether the kernel takes part in rankings: it is neither quarantined nor
-- nonequivalent (nonequivalent).
--
-- key columns: kernel_id, device, baseline, clock, speedup, speedup_low, speedup_high, n, ranked
SELECT
    pooled_speedups.*,
    quarantined.kernel_id IS NOT NULL AS quarantined,
    nonequivalent.kernel_id IS NULL AS equivalent,
    quarantined.kernel_id IS NULL AND nonequivalent.kernel_id IS NULL
    AND unheld.kernel_id IS NULL AS ranked
FROM pooled_speedups
INNER JOIN default_clocks
    ON
        default_clocks.task_id = pooled_speedups.task_id
        AND default_clocks.workload_id = pooled_speedups.workload_id
        AND default_clocks.device = pooled_speedups.device
        AND default_clocks.baseline = pooled_speedups.baseline
        AND default_clocks.clock = pooled_speedups.clock
        AND default_clocks."precision" = pooled_speedups."precision"
LEFT JOIN quarantined ON quarantined.kernel_id = pooled_speedups.kernel_id
LEFT JOIN nonequivalent
    ON
        nonequivalent.kernel_id = pooled_speedups.kernel_id
        AND nonequivalent.task_id = pooled_speedups.task_id
LEFT JOIN unheld
    ON
        unheld.kernel_id = pooled_speedups.kernel_id
        AND unheld.task_id = pooled_speedups.task_id
