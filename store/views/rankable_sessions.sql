-- One row of speedups that may be ranked: correct, not noisy, in the cache mode that ranks there.
SELECT speedups.*, quarantined.kernel_id IS NOT NULL AS quarantined
FROM speedups
INNER JOIN cache_modes
    ON
        cache_modes.task_id = speedups.task_id
        AND cache_modes.workload_id = speedups.workload_id
        AND cache_modes.device = speedups.device
        AND cache_modes.baseline = speedups.baseline
        AND cache_modes.cache = speedups.cache
LEFT JOIN quarantined ON quarantined.kernel_id = speedups.kernel_id
WHERE speedups.correct AND NOT speedups.noisy
