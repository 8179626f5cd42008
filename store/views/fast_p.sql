-- One row per suite, revision, level, device, baseline, author and p: share of tasks faster than p.
-- fast_p is the share of tasks with a correct kernel and a speedup strictly above p (KernelBench).
-- fast_0 is the share of tasks with a correct kernel, whether or not it was timed against the
-- baseline. n counts the decided tasks that are not trivial. level NULL stands for all levels, and
-- policy 'any' for the best kernel of all authors. clock and precision are those that rank the
-- tasks (default_clocks); several are a list.
-- Grows at CROSS_PRODUCT: each task counts for each of eleven values of p.
--
-- key columns: suite, level, device, baseline, policy, p, share, count, n
-- p: speedup that a task has to exceed (a ratio)
-- count: number of tasks with a correct kernel and a speedup above p
-- n: number of decided tasks that are not trivial
-- share: count / n
SELECT
    suite, suite_revision, "level", device, baseline, policy_id, policy,
    thresholds.p,
    count(*) FILTER (WHERE correct AND (thresholds.p = 0 OR speedup > thresholds.p)) AS "count",
    count(*) AS n,
    "count" / n AS share,
    string_agg(DISTINCT clock, ', ' ORDER BY clock) AS clock,
    string_agg(DISTINCT "precision", ', ' ORDER BY "precision") AS "precision"
FROM task_results
CROSS JOIN (
    SELECT unnest([0, 0.5, 0.8, 1, 1.01, 1.2, 1.5, 2, 3, 5, 10])::DOUBLE AS p
) AS thresholds
WHERE decided AND NOT left_out
GROUP BY suite, suite_revision, "level", device, baseline, policy_id, policy, thresholds.p
ORDER BY
    suite, suite_revision, "level" NULLS FIRST, device, baseline,
    policy_id IS NULL, policy, policy_id, thresholds.p
