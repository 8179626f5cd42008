-- One row per technique, device and baseline: the speedups of the kernels that use it.
-- This is an association over n pairs of kernel and task, not an effect: kernels that use a
-- technique differ in other ways too. p50_low and p50_high are the exact 95 % interval of the
-- median (rank as in speedups).
--
-- key columns: technique, device, baseline, p50, p50_low, p50_high, n
-- n: number of pairs of kernel and task
-- share_faster: share of them with a speedup above 1.01 (0 to 1)
WITH uses AS (
    SELECT DISTINCT * REPLACE (unnest(techniques) AS techniques)
    FROM technique_speedups
),
results AS (
    SELECT
        techniques AS technique, device, baseline,
        count(*) AS n,
        count(DISTINCT kernel_id) AS kernels,
        count(DISTINCT task_id) AS tasks,
        exp(avg(ln(speedup))) AS geomean,
        quantile_cont(speedup, 0.5) AS p50,
        list_sort(list(speedup)) AS sorted,
        count(*) FILTER (WHERE speedup > 1.01) / count(*) AS share_faster
    FROM uses
    GROUP BY techniques, device, baseline
),
ranked AS (
    SELECT
        *, greatest(1, floor((n + 1) / 2 - 0.979982 * sqrt(greatest(n, 1) - 0.473576)))::BIGINT AS r
    FROM results
)
SELECT
    technique, device, baseline, n, kernels, tasks, geomean, p50,
    sorted[r] AS p50_low,
    sorted[n + 1 - r] AS p50_high,
    share_faster
FROM ranked
ORDER BY device, baseline, geomean DESC, technique
