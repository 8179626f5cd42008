-- One row per task, workload, device and baseline: the clock that ranks there.
-- On a GPU that is gpu, the work of the device itself: it does not depend on the host, and nothing
-- that a kernel does outside of its call is part of it. On a processor it is throughput, since a
-- short call can only be told among others. Another clock ranks where that was not measured, so
-- that one table never mixes two.
SELECT
    timings.task_id, timings.workload_id, devices."name" AS device, timings.arm AS baseline,
    CASE
        WHEN bool_or(timings.clock = 'gpu') THEN 'gpu'
        WHEN any_value(devices.kind) = 'cuda' AND bool_or(timings.clock = 'latency') THEN 'latency'
        WHEN bool_or(timings.clock = 'throughput') THEN 'throughput'
        ELSE 'latency'
    END AS clock
FROM clocked_timings AS timings
INNER JOIN devices ON devices.device_id = timings.device_id
WHERE timings.arm <> 'kernel' AND timings.clock IS NOT NULL
GROUP BY timings.task_id, timings.workload_id, devices."name", timings.arm
