-- fast_p by baseline
-- Share of decided tasks whose best kernel is correct and more than p times faster than the
-- baseline (strictly, as KernelBench counts); p = 0 is correctness alone. All levels, best of
-- everybody. A task that is not timed against the baseline counts as not faster: read a line by its
-- timed tasks.
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
