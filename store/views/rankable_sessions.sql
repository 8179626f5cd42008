-- One row of speedups that may be ranked: correct, not noisy, in the cache mode that ranks there.
-- ranked says whether its kernel takes part: neither quarantined nor another function than the task's.
SELECT
    speedups.*,
    quarantined.kernel_id IS NOT NULL AS quarantined,
    nonequivalent.kernel_id IS NULL AS equivalent,
    quarantined.kernel_id IS NULL AND nonequivalent.kernel_id IS NULL AS ranked
FROM speedups
INNER JOIN cache_modes
    ON
        cache_modes.task_id = speedups.task_id
        AND cache_modes.workload_id = speedups.workload_id
        AND cache_modes.device = speedups.device
        AND cache_modes.baseline = speedups.baseline
        AND cache_modes.cache = speedups.cache
LEFT JOIN quarantined ON quarantined.kernel_id = speedups.kernel_id
LEFT JOIN nonequivalent
    ON
        nonequivalent.kernel_id = speedups.kernel_id
        AND nonequivalent.task_id = speedups.task_id
WHERE speedups.correct AND NOT speedups.noisy
