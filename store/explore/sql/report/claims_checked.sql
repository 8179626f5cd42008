-- Claims against measurements
-- One row per source, GPU of the claim, baseline and measured device, over claimed kernels that
-- were judged. A claim holds if the kernel is correct and the claim is inside the measured
-- interval, or if the measured speedup is within 10 % of the claim. It is exceeded if the kernel
-- is faster than that. It falls if the kernel is wrong or slower, but only on the GPU that the
-- claim is about; falls is empty for other GPUs. wrong counts kernels that are not correct.
-- Three kinds of claims are neither confirmed nor refuted: those on trivial tasks (weak), which
-- trivial answers pass and which no other column but judged includes; those of correct kernels
-- that compute another function than the task; and those of other correct kernels without a
-- quiet session. ratio is the measured speedup over the claimed one.
-- Empty: No claimed kernel has been judged: import the release, then evaluators run.
WITH results AS (
    SELECT
        "source", gpu, baseline, device,
        count(*) AS judged,
        count(*) FILTER (WHERE holds) AS holds,
        count(*) FILTER (WHERE exceeded) AS exceeded,
        CASE WHEN bool_and(same_gpu) THEN count(*) FILTER (WHERE falls) END AS falls,
        count(*) FILTER (WHERE NOT weak AND status <> 'correct') AS wrong,
        count(*) FILTER (WHERE NOT weak AND status = 'correct' AND NOT equivalent)
            AS "another function",
        count(*) FILTER (WHERE weak) AS weak,
        count(*) FILTER (WHERE NOT weak AND equivalent AND status = 'correct' AND measured IS NULL)
            AS "no quiet session",
        count(ratio) AS n,
        exp(avg(ln(ratio))) AS geomean_ratio,
        quantile_cont(ratio, 0.5) AS p50_ratio,
        list_sort(list(ratio) FILTER (WHERE ratio IS NOT NULL)) AS sorted,
        min(ratio) AS min_ratio,
        max(ratio) AS max_ratio
    FROM claims_vs_measured
    GROUP BY "source", gpu, baseline, device
),
ranked AS (
    SELECT
        *, greatest(1, floor((n + 1) / 2 - 0.979982 * sqrt(greatest(n, 1) - 0.473576)))::BIGINT AS r
    FROM results
)
SELECT
    "source", gpu, device,
    p50_ratio, sorted[r] AS p50_ratio_low, sorted[n + 1 - r] AS p50_ratio_high,
    baseline, judged, holds, exceeded, falls, wrong, "another function", weak, "no quiet session",
    n, geomean_ratio, min_ratio, max_ratio
FROM ranked
ORDER BY "source", gpu, device, baseline <> 'eager', baseline
LIMIT 80
