-- Leaderboard
-- All levels, best of all authors, over eager. The first question at an old snapshot takes long.
-- Empty: No kernel had a verdict at this snapshot.
SELECT
    suite || ' ' || suite_revision AS suite, p50, p50_low, p50_high, n, device, clock,
    success AS correct, tasks, geomean, faster
FROM leaderboard
WHERE "level" IS NULL AND policy_id IS NULL AND baseline = 'eager'
ORDER BY suite, device
