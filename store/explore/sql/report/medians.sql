-- Median speedup over each baseline
-- Best kernel of each task over all authors; n tasks, with the exact 95 % interval of the median.
-- A kernel that is faster than eager alone may be slower than one flag of PyTorch.
-- Empty: No correct kernel has a quiet timing session yet: evaluators run.
SELECT
    suite || ' ' || suite_revision AS suite, device, baseline, p50, p50_low, p50_high, n, geomean,
    clock, "precision"
FROM leaderboard
WHERE "level" IS NULL AND policy_id IS NULL AND n > 0 AND baseline IS NOT NULL
ORDER BY suite, device, baseline <> 'eager', baseline
