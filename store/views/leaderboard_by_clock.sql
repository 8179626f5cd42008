-- One row per suite, revision, level, device, baseline, author, clock and precision.
-- leaderboard shows the clock and the precision that rank a task (default_clocks); this view shows
-- all that were measured, with the median of speedups, and ranks says whether they rank any. Each row
-- has its own best kernel of a task, by the lower bound of the speedup, at the workload that scores
-- the task. n tasks have one. Quarantined and nonequivalent kernels and trivial tasks are left out.
-- level NULL stands for all levels, and policy 'any' for the best kernel of all authors. The
-- interval of p50 is that of leaderboard.
--
-- key columns: suite, level, device, baseline, policy, clock, p50, p50_low, p50_high, n, ranks
-- ranks: whether this clock and precision rank any of the tasks
-- n: number of tasks with a speedup
WITH best AS (
    SELECT
        attempted_kernels.policy_id, speeds.task_id, speeds.device, speeds.baseline, speeds.clock,
        speeds."precision",
        min({
            'slowness': -speeds.speedup_low,
            'kernel_id': speeds.kernel_id,
            'speedup': speeds.speedup
        }).speedup AS speedup,
        bool_or(default_clocks.task_id IS NOT NULL) AS ranks
    FROM pooled_speedups AS speeds
    INNER JOIN scored_workloads
        ON
            scored_workloads.task_id = speeds.task_id
            AND scored_workloads.device = speeds.device
            AND scored_workloads.workload_id = speeds.workload_id
    INNER JOIN attempted_kernels
        ON
            attempted_kernels.kernel_id = speeds.kernel_id
            AND attempted_kernels.task_id = speeds.task_id
    ANTI JOIN quarantined ON quarantined.kernel_id = speeds.kernel_id
    ANTI JOIN nonequivalent
        ON
            nonequivalent.kernel_id = speeds.kernel_id
            AND nonequivalent.task_id = speeds.task_id
    ANTI JOIN unheld
        ON
            unheld.kernel_id = speeds.kernel_id
            AND unheld.task_id = speeds.task_id
    ANTI JOIN weak_tasks ON weak_tasks.task_id = speeds.task_id
    LEFT JOIN default_clocks
        ON
            default_clocks.task_id = speeds.task_id
            AND default_clocks.workload_id = speeds.workload_id
            AND default_clocks.device = speeds.device
            AND default_clocks.baseline = speeds.baseline
            AND default_clocks.clock = speeds.clock
            AND default_clocks."precision" = speeds."precision"
    GROUP BY
        attempted_kernels.policy_id, speeds.task_id, speeds.device, speeds.baseline, speeds.clock,
        speeds."precision"
),
labels AS (
    SELECT DISTINCT suite, suite_revision, task_id, "level"
    FROM (SELECT * REPLACE (unnest([NULL, "level"]) AS "level") FROM counted_labels)
),
results AS (
    SELECT
        labels.suite, labels.suite_revision, labels."level", best.device, best.baseline,
        best.policy_id, best.clock, best."precision",
        bool_or(best.ranks) AS ranks,
        count(*) AS n,
        count(*) FILTER (WHERE best.speedup > 1.01) AS faster,
        quantile_cont(best.speedup, 0.5) AS p50,
        quantile_cont(best.speedup, 0.25) AS p25,
        quantile_cont(best.speedup, 0.75) AS p75,
        exp(avg(ln(best.speedup))) AS geomean,
        avg(best.speedup) AS mean,
        max(best.speedup) AS max,
        list_sort(list(best.speedup)) AS sorted,
        greatest(1, floor((n + 1) / 2 - 0.979982 * sqrt(n - 0.473576)))::BIGINT AS r
    FROM best
    INNER JOIN labels ON labels.task_id = best.task_id
    GROUP BY
        labels.suite, labels.suite_revision, labels."level", best.device, best.baseline,
        best.policy_id, best.clock, best."precision"
)
SELECT
    results.suite, results.suite_revision, results."level", results.device, results.baseline,
    results.policy_id,
    CASE WHEN results.policy_id IS NULL THEN 'any' ELSE policies."name" END AS policy,
    results.clock, results."precision", results.ranks, results.p50,
    results.sorted[r] AS p50_low,
    results.sorted[n + 1 - r] AS p50_high,
    results.n, results.faster, results.geomean, results.mean, results.p25, results.p75, results.max
FROM results
LEFT JOIN policies ON policies.policy_id = results.policy_id
ORDER BY
    results.suite, results.suite_revision, results."level" NULLS FIRST, results.device,
    results.baseline, results.policy_id IS NULL, policy, results.policy_id, results.clock,
    results."precision"
