-- Share of the roofline
-- From the profiles of one call: the bytes that any answer has to move and the operations of the
-- reference, their rates, and the shares of the device's peaks. A profile is of one workload, which
-- it does not name.
WITH profiles AS (
    SELECT
        analysis_id, author, bottleneck, created_at,
        regexp_extract(
            body, 'Memory: at least (\S+) MB, (\S+) GB/s, (\d+) % of (\S+)\.',
            ['mb', 'rate', 'share', 'peak']
        ) AS memory,
        regexp_extract(
            body, 'Compute: (\S+) GFLOP in the reference, (\S+) GFLOP/s, (\d+) % of (\S+)\.',
            ['gflop', 'rate', 'share', 'peak']
        ) AS compute
    FROM analyses
    WHERE kernel_id = $kernel AND kind = 'profiler'
)
SELECT
    bottleneck,
    TRY_CAST(memory.share AS DOUBLE) / 100 AS share_of_bandwidth,
    TRY_CAST(compute.share AS DOUBLE) / 100 AS share_of_compute_peak,
    TRY_CAST(memory.mb AS DOUBLE) AS moved_mb,
    TRY_CAST(memory.rate AS DOUBLE) AS gb_per_s,
    TRY_CAST(memory.peak AS DOUBLE) AS peak_gb_per_s,
    TRY_CAST(compute.gflop AS DOUBLE) AS gflop,
    TRY_CAST(compute.rate AS DOUBLE) AS gflop_per_s,
    TRY_CAST(compute.peak AS DOUBLE) AS peak_gflop_per_s,
    author AS profiler, created_at AS profiled_at
FROM profiles
WHERE memory.mb <> '' OR compute.gflop <> ''
ORDER BY profiled_at DESC, analysis_id
