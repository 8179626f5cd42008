-- Raw samples
-- Every sample of every arm of the newest timing sessions, in the order of their blocks; sessions
-- that rank come first. Both arms of a block ran next to each other, so a drift of the device moves
-- them together. ranks_nothing says why a session is in no ranking, such as that the kernel
-- computes a different function.
WITH judged AS (
    SELECT evaluation_id, "precision", threads
    FROM counted_evaluations
    WHERE kernel_id = $kernel
)
SELECT
    timings.arm, list_median(timings.samples_ms) AS median_ms, unranked.reason AS ranks_nothing,
    timings.clock,
    devices.name AS device, judged.threads, workloads.name AS workload,
    nullif(workloads.axes, '{}') AS axes,
    list_min(timings.samples_ms) AS min_ms, list_max(timings.samples_ms) AS max_ms,
    len(timings.samples_ms) AS samples, timings.inner_loops, timings.cache, timings.disturbed,
    timings.unresolved,
    judged."precision", timings.overhead_ms, timings.resolution_ms,
    list_median(timings.sm_clock_mhz) AS clock_mhz,
    list_max(timings.temperature_c) AS temperature_c,
    timings.created_at AS measured_at, timings.session_id, timings.samples_ms, timings.blocks
FROM clocked_timings AS timings
INNER JOIN devices ON devices.device_id = timings.device_id
LEFT JOIN judged ON judged.evaluation_id = timings.evaluation_id
LEFT JOIN (SELECT * FROM unranked_sessions WHERE kernel_id = $kernel) AS unranked
    ON unranked.session_id = timings.session_id
        AND unranked.clock IS NOT DISTINCT FROM timings.clock
        AND unranked.task_id = timings.task_id
INNER JOIN workloads ON workloads.workload_id = timings.workload_id
WHERE timings.kernel_id = $kernel
    AND devices."name" = $device
    AND timings.clock = $clock
    AND judged."precision" = $precision
ORDER BY unranked.reason IS NOT NULL, timings.created_at DESC, timings.session_id, timings.clock,
    timings.arm <> 'kernel', timings.arm <> 'eager', timings.arm
