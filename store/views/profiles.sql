-- One row per profile of a kernel: what limits the kernel, how sure that is, and where it ran.
-- Profiles from before version 0.5.0 name neither their evaluation nor shares. The evaluation is
-- then the only one of the same kernel that was stored within a tenth of a second; where there is
-- none, or several, its columns are NULL. The shares are those in the text, by which such profiles
-- name a bottleneck as newer ones do.
--
-- key columns: kernel_id, device, profiler, bottleneck, memory_share, compute_share
-- analysis_id: analysis (table analyses), which has the profile's text
-- evaluation_id: evaluation that profiled the kernel (table evaluations); NULL if it is not known
-- profiler: name and version of the profiler
-- bottleneck: largest cause of the time: memory_bandwidth, compute, launch_overhead or
--   synchronisation; unknown if none accounts for a tenth of it
-- confidence: share of the measured time that the bottleneck accounts for, at most 1; below 0.3 it
--   is the largest of small causes
-- bound: property of the task on this device: memory if its bytes at the device's bandwidth take
--   longer than the reference's operations at its peak, otherwise compute
-- memory_share: time of the task's bytes at the device's bandwidth / measured time
-- compute_share: time of the reference's operations at the device's float32 peak / measured time;
--   above 1 the kernel does fewer of them, or does them on faster units
-- idle_share: share of the measured time in which the device waits
-- profiled_at: when the profile was made
WITH profiled AS (
    SELECT
        *,
        coalesce(confidence, memory_share, compute_share, idle_share) IS NULL AS is_text
    FROM analyses
    WHERE kind = 'profiler' AND kernel_id IS NOT NULL
),
texts AS (
    SELECT
        analysis_id,
        TRY_CAST(regexp_extract(body, 'GB/s, (\d+) % of', 1) AS DOUBLE) / 100 AS memory_share,
        coalesce(
            TRY_CAST(regexp_extract(body, 'GFLOP/s, (\d+) % of', 1) AS DOUBLE) / 100,
            TRY_CAST(regexp_extract(body, 'would take (\S+) ms at the peak', 1) AS DOUBLE)
            / TRY_CAST(regexp_extract(body, 'One call: (\S+) ms', 1) AS DOUBLE)
        ) AS compute_share,
        TRY_CAST(regexp_extract(body, 'Device idle: (\d+) %', 1) AS DOUBLE) / 100 AS idle_share,
        CASE
            WHEN contains(body, 'synchronisations before') THEN 'synchronisation'
            ELSE 'launch_overhead'
        END AS waiting
    FROM profiled
    WHERE is_text
),
-- The largest cause of each. A kernel beyond the peak does not do the reference's operations.
causes AS (
    SELECT
        *,
        list_max([
            {'share': coalesce(memory_share, 0), 'name': 'memory_bandwidth'},
            {
                'share': CASE WHEN compute_share <= 1 THEN compute_share ELSE 0 END,
                'name': 'compute'
            },
            {'share': coalesce(idle_share, 0), 'name': waiting}
        ]) AS largest
    FROM texts
),
-- When an evaluation and its profile are written, milliseconds pass, and seconds until the next.
neighbors AS (
    SELECT
        profiled.analysis_id, min(evaluations.evaluation_id) AS evaluation_id
    FROM profiled
    INNER JOIN evaluations
        ON
            evaluations.kernel_id = profiled.kernel_id
            AND evaluations.origin IS NOT DISTINCT FROM profiled.origin
            AND evaluations.created_at BETWEEN profiled.created_at - INTERVAL 100 MILLISECONDS
            AND profiled.created_at + INTERVAL 100 MILLISECONDS
    WHERE profiled.is_text AND profiled.evaluation_id IS NULL
    GROUP BY profiled.analysis_id
    HAVING count(*) = 1
),
named AS (
    SELECT
        profiled.analysis_id, profiled.kernel_id, profiled.author, profiled.origin,
        profiled.created_at,
        coalesce(profiled.evaluation_id, neighbors.evaluation_id) AS evaluation_id,
        CASE
            WHEN profiled.bottleneck = 'unknown' AND causes.largest.share >= 0.1
                THEN causes.largest.name
            ELSE profiled.bottleneck
        END AS bottleneck,
        CASE
            WHEN causes.analysis_id IS NULL THEN profiled.confidence
            WHEN
                causes.largest.share >= 0.1
                AND profiled.bottleneck IN ('unknown', causes.largest.name)
                THEN least(causes.largest.share, 1)
        END AS confidence,
        coalesce(profiled.memory_share, causes.memory_share) AS memory_share,
        coalesce(profiled.compute_share, causes.compute_share) AS compute_share,
        coalesce(profiled.idle_share, causes.idle_share) AS idle_share
    FROM profiled
    LEFT JOIN causes ON causes.analysis_id = profiled.analysis_id
    LEFT JOIN neighbors ON neighbors.analysis_id = profiled.analysis_id
)
SELECT
    named.analysis_id,
    named.kernel_id,
    named.evaluation_id,
    evaluations.task_id,
    evaluations.workload_id,
    evaluations.device_id,
    devices."name" AS device,
    CASE
        WHEN devices.kind = 'cpu' THEN 'torch_default'
        WHEN evaluations.evaluation_id IS NOT NULL
            THEN coalesce(split_part(evaluations."precision", ' ', 1), 'torch_default')
    END AS "precision",
    named.author AS profiler,
    named.bottleneck,
    named.confidence,
    CASE
        WHEN coalesce(named.memory_share, named.compute_share) IS NULL THEN NULL
        WHEN coalesce(named.memory_share, 0) >= coalesce(named.compute_share, 0) THEN 'memory'
        ELSE 'compute'
    END AS bound,
    named.memory_share,
    named.compute_share,
    named.idle_share,
    named.origin IS NULL AS own,
    named.created_at AS profiled_at
FROM named
LEFT JOIN evaluations ON evaluations.evaluation_id = named.evaluation_id
LEFT JOIN devices ON devices.device_id = evaluations.device_id
