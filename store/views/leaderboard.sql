-- One row per suite, revision, level, device, baseline and policy: the columns of CUDA-L1's tables.
-- level NULL is all levels, policy 'any' is the best of everybody. Figures are over n tasks, one
-- best kernel each; success counts tasks with a correct kernel, faster those above 1.01x, both out
-- of tasks; pending tasks wait for a verdict and are in none of them. A mean is read in two ways:
-- over the n measured tasks, and over all tasks with 1.0 for each that has no speedup. p50_low and
-- p50_high are the exact order-statistic 95 % interval of the median over tasks (rank as in
-- speedups; under 6 tasks it is the smallest and largest value).
WITH results AS (
    SELECT
        suite, suite_revision, "level", device, baseline, policy_id, policy,
        count(*) FILTER (WHERE decided) AS tasks,
        count(*) FILTER (WHERE NOT decided) AS pending,
        count(*) FILTER (WHERE correct) AS success,
        count(*) FILTER (WHERE speedup > 1.01) AS faster,
        count(speedup) AS n,
        avg(speedup) AS mean,
        max(speedup) AS max,
        quantile_cont(speedup, 0.75) AS p75,
        quantile_cont(speedup, 0.5) AS p50,
        quantile_cont(speedup, 0.25) AS p25,
        list_sort(list(speedup) FILTER (WHERE speedup IS NOT NULL)) AS sorted,
        exp(avg(ln(speedup))) AS geomean,
        avg(coalesce(speedup, 1.0)) FILTER (WHERE decided) AS mean_missing_as_1,
        exp(avg(ln(coalesce(speedup, 1.0))) FILTER (WHERE decided)) AS geomean_missing_as_1,
        avg(speedup) FILTER (WHERE NOT degenerate) AS mean_without_degenerate
    FROM task_results
    GROUP BY suite, suite_revision, "level", device, baseline, policy_id, policy
),
ranked AS (
    SELECT
        *, greatest(1, floor((n + 1) / 2 - 0.979982 * sqrt(greatest(n, 1) - 0.473576)))::BIGINT AS r
    FROM results
)
SELECT
    suite, suite_revision, "level", device, baseline, policy_id, policy,
    mean, max, p75, p50, p25, success, faster, tasks, n, pending, geomean,
    sorted[r] AS p50_low,
    sorted[n + 1 - r] AS p50_high,
    mean_missing_as_1, geomean_missing_as_1, mean_without_degenerate
FROM ranked
ORDER BY
    suite, suite_revision, "level" NULLS FIRST, device, baseline,
    policy_id IS NULL, policy, policy_id
