-- One row per kernel, task, workload, device and baseline: the newest session that may be ranked.
-- ranked says whether the kernel takes part in rankings: neither quarantined nor another function than
-- the task's (view nonequivalent).
SELECT
    newest_speedups.*,
    quarantined.kernel_id IS NOT NULL AS quarantined,
    nonequivalent.kernel_id IS NULL AS equivalent,
    quarantined.kernel_id IS NULL AND nonequivalent.kernel_id IS NULL AS ranked
FROM newest_speedups
INNER JOIN cache_modes
    ON
        cache_modes.task_id = newest_speedups.task_id
        AND cache_modes.workload_id = newest_speedups.workload_id
        AND cache_modes.device = newest_speedups.device
        AND cache_modes.baseline = newest_speedups.baseline
        AND cache_modes.cache = newest_speedups.cache
LEFT JOIN quarantined ON quarantined.kernel_id = newest_speedups.kernel_id
LEFT JOIN nonequivalent
    ON
        nonequivalent.kernel_id = newest_speedups.kernel_id
        AND nonequivalent.task_id = newest_speedups.task_id
