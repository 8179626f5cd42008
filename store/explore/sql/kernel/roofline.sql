-- Share of the roofline
-- From the profiles of one call: the bytes that any answer has to move and the operations of the
-- reference, their rates, and the shares of the device's peaks (view profiles).
WITH texts AS (
    SELECT
        analysis_id,
        regexp_extract(
            body, 'Memory: at least (\S+) MB, (\S+) GB/s, \d+ % of (\S*\d)', ['mb', 'rate', 'peak']
        ) AS memory,
        regexp_extract(
            body, 'Compute: (\S+) GFLOP in the reference, (\S+) GFLOP/s, \d+ % of (\S*\d)',
            ['gflop', 'rate', 'peak']
        ) AS compute
    FROM analyses
    WHERE kernel_id = $kernel AND kind = 'profiler'
)
SELECT
    profiles.device,
    workloads."name" AS workload,
    profiles."precision",
    profiles.bottleneck,
    profiles.confidence,
    profiles.memory_share AS share_of_bandwidth,
    profiles.compute_share AS share_of_compute_peak,
    TRY_CAST(texts.memory.mb AS DOUBLE) AS moved_mb,
    TRY_CAST(texts.memory.rate AS DOUBLE) AS gb_per_s,
    TRY_CAST(texts.memory.peak AS DOUBLE) AS peak_gb_per_s,
    TRY_CAST(texts.compute.gflop AS DOUBLE) AS gflop,
    TRY_CAST(texts.compute.rate AS DOUBLE) AS gflop_per_s,
    TRY_CAST(texts.compute.peak AS DOUBLE) AS peak_gflop_per_s,
    profiles.profiler, profiles.profiled_at
FROM texts
INNER JOIN profiles ON profiles.analysis_id = texts.analysis_id
LEFT JOIN workloads ON workloads.workload_id = profiles.workload_id
WHERE texts.memory.mb <> '' OR texts.compute.gflop <> ''
ORDER BY profiles.profiled_at DESC, profiles.analysis_id
