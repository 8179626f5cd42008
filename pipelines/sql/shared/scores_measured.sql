-- One row per kernel and task asked for, with a measured speedup: its score, and why it may not be shown.
-- Two scores differ where the interval of their ratio excludes 1. The interval goes from low of one
-- by reach of the other to reach of one by low of the other: low and reach are the bounds of the
-- pooled speedup, but at least half a unit of its second decimal away, so that prompts show two
-- numbers. beside_reference: the kernel differs from the reference, whose score is 1.
-- The score is the pooled speedup of the sessions that may be ranked, at the workload that scores the
-- task (views kernel_speedups, scored_workloads), by the clock that ranks or by $clock; the session
-- holds only while the kernel is correct there. A kernel that is wrong on another device or workload
-- (view outcomes) is out as well, and so is one that is another function than the task's, and one of
-- `excluded`. Registered are `asked`, the tasks, `unfit` and `excluded`.
WITH sole_device AS (
    SELECT min(device_id) AS device_id
    FROM devices
    WHERE "name" = $device
    HAVING count(*) = 1
),
-- One row per task: what its score is read at. A workload belongs to one task.
scored AS MATERIALIZED (
    SELECT
        scored_workloads.task_id, scored_workloads.workload_id,
        coalesce($clock, default_clocks.clock) AS clock, default_clocks."precision"
    FROM scored_workloads
    SEMI JOIN asked ON asked.task_id = scored_workloads.task_id
    INNER JOIN default_clocks
        ON
            default_clocks.task_id = scored_workloads.task_id
            AND default_clocks.workload_id = scored_workloads.workload_id
            AND default_clocks.device = scored_workloads.device
    WHERE scored_workloads.device = $device AND default_clocks.baseline = $baseline
),
-- What went wrong at the scored workload on the device itself is known to pooled_speedups already.
standing AS (
    SELECT DISTINCT outcomes.kernel_id, outcomes.task_id
    FROM outcomes
    LEFT JOIN scored_workloads
        ON
            scored_workloads.device = $device
            AND scored_workloads.task_id = outcomes.task_id
            AND scored_workloads.workload_id = outcomes.workload_id
    WHERE
        outcomes.status IN ('incorrect', 'rejected')
        AND NOT outcomes.elsewhere
        AND (
            scored_workloads.workload_id IS NULL
            OR outcomes.device_id IS DISTINCT FROM (SELECT device_id FROM sole_device)
        )
)
SELECT
    measured.task_id,
    measured.kernel_id,
    measured.speedup AS score,
    measured.speedup_low AS score_low,
    measured.speedup_high AS score_high,
    least(measured.speedup_low, measured.speedup - 0.005) AS low,
    greatest(measured.speedup_high, measured.speedup + 0.005) AS reach,
    low > 1 OR reach < 1 AS beside_reference,
    measured.kernel_ms,
    measured.evaluation_id,
    measured.workload_id,
    shapes.shapes,
    measured.device AS scored_on,
    false AS implied,
    -- IN, for a LEFT JOIN may turn round and hash the many scored kernels.
    CASE
        WHEN measured.kernel_id IN (SELECT kernel_id FROM excluded)
            THEN (
                SELECT excluded.reason FROM excluded WHERE excluded.kernel_id = measured.kernel_id
            )
        WHEN (measured.kernel_id, measured.task_id) IN (SELECT (kernel_id, task_id) FROM standing)
            THEN 'wrong elsewhere'
        WHEN
            (measured.kernel_id, measured.task_id)
            IN (SELECT (kernel_id, task_id) FROM unfit)
            THEN (
                SELECT unfit.reason
                FROM unfit
                WHERE
                    unfit.kernel_id = measured.kernel_id AND unfit.task_id = measured.task_id
            )
    END AS dropped
FROM pooled_speedups AS measured
INNER JOIN scored
    ON
        scored.workload_id = measured.workload_id
        AND scored.clock = measured.clock
        AND scored."precision" = measured."precision"
LEFT JOIN shapes
    ON
        shapes.kernel_id = measured.kernel_id
        AND shapes.task_id = measured.task_id
        AND shapes.device = measured.device
WHERE measured.device = $device AND measured.baseline = $baseline
