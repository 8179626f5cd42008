-- One row per task, workload, device and baseline: the clock and the precision that rank there.
-- The precision is torch_default, which is what users of PyTorch run. Where nothing was timed by it,
-- fp32_strict ranks, and else allow_tf32. On a GPU the ranking clock is gpu, which times the
-- device's own work: the host hardly changes it, and nothing that a kernel does outside its
-- call adds to it. On a processor it is throughput, because a short call can only be timed together
-- with others. Where the ranking clock was not measured, another clock ranks. One table thus never
-- mixes two clocks or two precisions for the same task.
WITH measured AS (
    SELECT
        timed_places.task_id, timed_places.workload_id, devices."name" AS device, devices.kind,
        timed_places.arm AS baseline, timed_places.clock, timed_places."precision"
    FROM timed_places
    INNER JOIN devices ON devices.device_id = timed_places.device_id
    WHERE
        timed_places.arm <> 'kernel'
        AND timed_places.clock IS NOT NULL
        AND timed_places."precision" IS NOT NULL
),
grouped AS (
    SELECT
        task_id, workload_id, device, baseline, "precision",
        CASE
            WHEN bool_or(clock = 'gpu') THEN 'gpu'
            WHEN any_value(kind) = 'cuda' AND bool_or(clock = 'latency') THEN 'latency'
            WHEN bool_or(clock = 'throughput') THEN 'throughput'
            ELSE 'latency'
        END AS clock
    FROM measured
    GROUP BY task_id, workload_id, device, baseline, "precision"
)
SELECT task_id, workload_id, device, baseline, clock, "precision"
FROM grouped
QUALIFY row_number() OVER (
    PARTITION BY task_id, workload_id, device, baseline
    ORDER BY "precision" <> 'torch_default', "precision" <> 'fp32_strict'
) = 1
