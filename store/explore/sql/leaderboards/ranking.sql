-- Leaderboard
-- One best kernel of each task and author, chosen by the lower end of its interval. n tasks have a
-- speedup; correct counts tasks with a correct kernel, out of the decided tasks. Author any is the
-- best of all authors. The last means read a task without a speedup as 1.
-- Empty: Nothing matches these filters. Without a filter, no kernel has a verdict yet: run
-- Empty: `evaluators run`.
SELECT
    policy, p50, p50_low, p50_high, n,
    suite || ' ' || suite_revision AS suite, coalesce("level"::VARCHAR, 'all') AS "level", device,
    baseline, clock, "precision",
    success AS correct, tasks, faster, geomean, mean, p25, p75, max,
    geomean_missing_as_1, mean_missing_as_1, weak, pending
FROM leaderboard
WHERE true
    AND suite || ' ' || suite_revision = $suite
    AND coalesce("level"::VARCHAR, 'all') = $level
    AND device = $device
    AND baseline = $baseline
    AND policy = $policy
ORDER BY n = 0, p50 DESC NULLS LAST, n DESC, policy_id IS NULL, policy,
    suite, device, baseline, "level"
