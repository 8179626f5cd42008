-- fast_p by author, against eager
-- The same with one line per author, over the tasks that it attempted: the six authors that solve
-- the most tasks. low and high are Wilson's 95 % interval of a share of n tasks.
-- Empty: Fewer than two authors have been judged on one device.
WITH shares AS (
    SELECT
        fast_p.suite || ' ' || fast_p.suite_revision AS suite, fast_p.device, fast_p.policy_id,
        fast_p.policy, fast_p.p, fast_p.share, fast_p."count", fast_p.n, leaderboard.n AS timed,
        leaderboard.success
    FROM fast_p
    INNER JOIN leaderboard
        ON
            leaderboard.suite = fast_p.suite
            AND leaderboard.suite_revision = fast_p.suite_revision
            AND leaderboard.device = fast_p.device
            AND leaderboard.baseline = fast_p.baseline
            AND leaderboard.policy_id = fast_p.policy_id
    WHERE
        fast_p."level" IS NULL AND leaderboard."level" IS NULL AND fast_p.baseline = 'eager'
)
SELECT
    suite, device, policy, p, share,
    (share + 1.9208 / n - 1.96 * sqrt(share * (1 - share) / n + 0.9604 / n / n)) / (1 + 3.8416 / n)
        AS share_low,
    (share + 1.9208 / n + 1.96 * sqrt(share * (1 - share) / n + 0.9604 / n / n)) / (1 + 3.8416 / n)
        AS share_high,
    "count", n, timed
FROM shares
QUALIFY
    count(DISTINCT policy_id) OVER (PARTITION BY suite, device) > 1
    AND dense_rank() OVER (PARTITION BY suite, device ORDER BY success DESC, policy_id) <= 6
ORDER BY suite, device, policy, policy_id, p
