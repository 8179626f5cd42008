-- One row of speedups that may be ranked: correct, not noisy, in the cache mode that ranks there.
-- Cold sessions rank; warm ones do where nothing cold was measured for the task, workload, device
-- and baseline, so that one table never mixes the two.
WITH modes AS (
    SELECT
        timings.task_id, timings.workload_id, devices."name" AS device, timings.arm AS baseline,
        CASE WHEN bool_or(timings.cache = 'cold') THEN 'cold' ELSE 'warm' END AS cache
    FROM timings
    INNER JOIN devices ON devices.device_id = timings.device_id
    WHERE timings.arm <> 'kernel'
    GROUP BY timings.task_id, timings.workload_id, devices."name", timings.arm
)
SELECT speedups.*, quarantined.kernel_id IS NOT NULL AS quarantined
FROM speedups
INNER JOIN modes
    ON
        modes.task_id = speedups.task_id
        AND modes.workload_id = speedups.workload_id
        AND modes.device = speedups.device
        AND modes.baseline = speedups.baseline
        AND modes.cache = speedups.cache
LEFT JOIN quarantined ON quarantined.kernel_id = speedups.kernel_id
WHERE speedups.correct AND NOT speedups.noisy
