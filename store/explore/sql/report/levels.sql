-- By level
-- The same columns by level. Below 6 tasks the interval is the smallest and the largest value.
-- Empty: No judged task has a level.
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
        WHERE "level" IS NOT NULL
    )
)
SELECT
    suite || ' ' || suite_revision AS suite, device, "level", policy,
    p50, p50_low, p50_high, baseline, clock, n, tasks, success, faster, geomean, mean, p25, p75, max,
    geomean_missing_as_1, mean_missing_as_1, mean_with_degenerate, weak, pending
FROM shown
WHERE (policies > 1 OR policy_id IS NOT NULL OR policies = 0) AND place <= 11
ORDER BY
    suite, device, "level", policy_id IS NULL DESC, policy, policy_id, baseline <> 'eager', baseline
