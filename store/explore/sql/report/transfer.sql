-- Does a speedup carry over?
-- One row per pair of devices and baseline, over ranked kernels that were timed on both. ratio is
-- the speedup on the second device over that on the first. The interval is the exact 95 % interval
-- of its median.
-- Empty: No kernel is timed on two devices: run `evaluators run` on another machine.
WITH results AS (
    SELECT
        device_a, device_b, baseline,
        count(*) AS n,
        count(*) FILTER (WHERE same_workload) AS "same sizes",
        exp(avg(ln(ratio))) AS geomean,
        quantile_cont(ratio, 0.5) AS p50,
        list_sort(list(ratio)) AS sorted,
        count(*) FILTER (WHERE ratio BETWEEN 0.9 AND 1 / 0.9) / count(*) AS "within 10 %",
        count(*) FILTER (WHERE (speedup_a > 1.01) <> (speedup_b > 1.01)) AS "faster on one alone",
        min(ratio) AS min,
        max(ratio) AS max
    FROM cross_gpu
    WHERE NOT quarantined
    GROUP BY device_a, device_b, baseline
),
ranked AS (
    SELECT
        *, greatest(1, floor((n + 1) / 2 - 0.979982 * sqrt(greatest(n, 1) - 0.473576)))::BIGINT AS r
    FROM results
)
SELECT
    device_a, p50, sorted[r] AS p50_low, sorted[n + 1 - r] AS p50_high, device_b, baseline, n,
    "same sizes", geomean, min, max, "within 10 %", "faster on one alone"
FROM ranked
ORDER BY device_a, device_b, baseline
LIMIT 60
