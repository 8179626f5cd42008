-- One row per task, workload, device and baseline: the clock and the precision that rank there.
-- The precision is torch_default, which is what users of PyTorch run, where any kernel has a verdict
-- by it for the task, workload and device. Where none has, fp32_strict ranks, and else allow_tf32; no
-- other precision ever ranks. A kernel that is wrong or was not timed by that precision therefore
-- does not rank by another one, and neither does a disturbed session make way for one by another.
-- On a GPU the ranking clock is gpu, which times the device's own work: the host hardly changes it,
-- and nothing that a kernel does outside its call adds to it. On a processor it is throughput,
-- because a short call can only be timed together with others. Where the ranking clock was not
-- measured, another clock ranks. Of a name that both kinds of device have, the GPU's clock ranks. One
-- table thus never mixes two clocks or two precisions for the same task.
-- Pulled rows decide the precision only where this lake has no verdict by any of the three, and the
-- clock only where it has not timed the baseline by that precision.
WITH judged AS (
    SELECT
        evaluated_places.task_id, evaluated_places.workload_id, devices."name" AS device,
        evaluated_places.own,
        list_position(
            ['torch_default', 'fp32_strict', 'allow_tf32'], evaluated_places."precision"
        ) AS place
    FROM evaluated_places
    INNER JOIN devices ON devices.device_id = evaluated_places.device_id
),
precisions AS (
    SELECT
        task_id, workload_id, device,
        coalesce(min(place) FILTER (WHERE own), min(place)) AS place
    FROM judged
    GROUP BY task_id, workload_id, device
),
measured AS (
    SELECT
        timed_places.task_id, timed_places.workload_id, devices."name" AS device, devices.kind,
        timed_places.arm AS baseline, timed_places.clock, timed_places."precision"
    FROM timed_places
    INNER JOIN devices ON devices.device_id = timed_places.device_id
    WHERE timed_places.arm <> 'kernel' AND timed_places.clock IS NOT NULL
    QUALIFY
        timed_places.own
        OR NOT bool_or(timed_places.own) OVER (
            PARTITION BY
                timed_places.task_id, timed_places.workload_id, devices."name", timed_places.arm,
                timed_places."precision"
        )
)
SELECT
    measured.task_id, measured.workload_id, measured.device, measured.baseline,
    CASE
        WHEN bool_or(measured.clock = 'gpu') THEN 'gpu'
        WHEN bool_or(measured.kind = 'cuda') AND bool_or(measured.clock = 'latency') THEN 'latency'
        WHEN bool_or(measured.clock = 'throughput') THEN 'throughput'
        ELSE 'latency'
    END AS clock,
    measured."precision"
FROM measured
INNER JOIN precisions
    ON
        precisions.task_id = measured.task_id
        AND precisions.workload_id = measured.workload_id
        AND precisions.device = measured.device
        AND precisions.place
        = list_position(['torch_default', 'fp32_strict', 'allow_tf32'], measured."precision")
GROUP BY
    measured.task_id, measured.workload_id, measured.device, measured.baseline,
    measured."precision"
