-- fast_p by baseline
-- Share of decided tasks whose best kernel is correct and more than p times as fast as the baseline
-- (KernelBench's measure). p = 0 counts correct kernels. A task that was not timed against the
-- baseline counts as not faster, so compare lines with their numbers of timed tasks.
-- Empty: No task has a verdict yet: evaluators run.
SELECT
    fast_p.suite || ' ' || fast_p.suite_revision AS suite, fast_p.device, fast_p.baseline, fast_p.p,
    fast_p.share, fast_p."count", fast_p.n, leaderboard.n AS timed
FROM fast_p
INNER JOIN leaderboard
    ON
        leaderboard.suite = fast_p.suite
        AND leaderboard.suite_revision = fast_p.suite_revision
        AND leaderboard.device = fast_p.device
        AND leaderboard.baseline = fast_p.baseline
WHERE
    fast_p."level" IS NULL AND fast_p.policy_id IS NULL
    AND leaderboard."level" IS NULL AND leaderboard.policy_id IS NULL
ORDER BY suite, fast_p.device, fast_p.baseline <> 'eager', fast_p.baseline, fast_p.p
