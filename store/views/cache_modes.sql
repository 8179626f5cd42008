-- One row per task, workload, device and baseline: the cache mode that ranks there.
-- Cold sessions rank; warm ones do where nothing cold was measured, so that one table never mixes
-- the two.
SELECT
    timings.task_id, timings.workload_id, devices."name" AS device, timings.arm AS baseline,
    CASE WHEN bool_or(timings.cache = 'cold') THEN 'cold' ELSE 'warm' END AS cache
FROM timings
INNER JOIN devices ON devices.device_id = timings.device_id
WHERE timings.arm <> 'kernel'
GROUP BY timings.task_id, timings.workload_id, devices."name", timings.arm
