-- All levels
-- One best kernel per task and author, chosen by the lower bound of its speedup. n tasks have a
-- correct kernel with a quiet session against the baseline. success counts tasks with a correct
-- kernel, timed or not; the next column counts tasks above 1.01×. The last columns read a task
-- without a speedup as 1.0. pending tasks wait for a verdict and are in no figure. Trivial tasks,
-- which a trivial answer passes, are left out; one mean includes them. Author any is the best of
-- all authors. The table shows it and the ten authors that solve the most tasks.
-- Empty: No kernel has been judged yet: evaluators run.
WITH shown AS (
    SELECT
        *,
        count(DISTINCT policy_id) OVER (PARTITION BY suite, suite_revision, device) AS policies,
        dense_rank() OVER (
            PARTITION BY suite, suite_revision, device
            ORDER BY policy_id IS NULL DESC, solved DESC, policy_id
        ) AS place
    FROM (
        SELECT
            *,
            max(success) OVER (PARTITION BY suite, suite_revision, device, policy_id) AS solved
        FROM leaderboard
        WHERE "level" IS NULL
    )
)
SELECT
    suite || ' ' || suite_revision AS suite, device, policy,
    p50, p50_low, p50_high, baseline, clock, "precision", n, sessions, tasks, success, faster, geomean, mean, p25,
    p75, max,
    geomean_missing_as_1, mean_missing_as_1, mean_with_degenerate, weak, pending
FROM shown
WHERE (policies > 1 OR policy_id IS NOT NULL OR policies = 0) AND place <= 11
ORDER BY
    suite, device, policy_id IS NULL DESC, policy, policy_id, baseline <> 'eager', baseline
