-- By clock and precision
-- One best kernel of each task and author by each clock and precision that was measured. The clock
-- gpu is a GPU's own work, latency is one call on an idle device, and throughput is calls in a row.
-- ranks marks the clock and precision of the other tables.
-- Empty: No correct kernel has a quiet timing session that matches these filters.
SELECT
    policy, p50, p50_low, p50_high, n, clock, "precision", ranks,
    suite || ' ' || suite_revision AS suite, coalesce("level"::VARCHAR, 'all') AS "level", device,
    baseline, faster, geomean, mean, p25, p75, max
FROM leaderboard_by_clock
WHERE true
    AND suite || ' ' || suite_revision = $suite
    AND coalesce("level"::VARCHAR, 'all') = $level
    AND device = $device
    AND baseline = $baseline
    AND policy = $policy
    AND clock = $clock
    AND "precision" = $precision
ORDER BY policy_id IS NULL DESC, suite, device, baseline, policy, NOT ranks, clock, "precision",
    "level"
