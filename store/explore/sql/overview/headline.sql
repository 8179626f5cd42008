-- Headline speedups
-- Best kernel of each task over eager, on each device: the median over n tasks with its interval,
-- and the share of tasks with a correct kernel. Trivial tasks and cheating kernels are left out.
-- Empty: No kernel has a verdict yet. `evaluators run` judges kernels.
SELECT
    suite || ' ' || suite_revision AS suite,
    p50, p50_low, p50_high, device, clock, geomean, n,
    success AS correct, tasks, faster,
    success / nullif(tasks, 0) AS share_correct
FROM leaderboard
WHERE "level" IS NULL AND policy_id IS NULL AND baseline = 'eager'
ORDER BY n DESC, suite, device
