-- One row per task, workload, device and baseline: the clock that ranks there.
-- On a GPU the ranking clock is gpu, which times the device's own work: it does not depend on the
-- host, and nothing that a kernel does outside its call adds to it. On a processor it is
-- throughput, because a short call can only be timed together with others. Where the ranking clock
-- was not measured, another clock ranks, so that one table never mixes two clocks.
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
