-- fast_p
-- Share of decided tasks with a correct kernel that is more than p times as fast as the baseline
-- (KernelBench's measure). fast_0 counts all correct kernels.
SELECT
    policy, device, baseline, suite || ' ' || suite_revision AS suite, p, "count", n, share,
    clock, "precision"
FROM fast_p
WHERE baseline IS NOT NULL
    AND suite || ' ' || suite_revision = $suite
    AND coalesce("level"::VARCHAR, 'all') = $level
    AND device = $device
    AND baseline = $baseline
    AND policy = $policy
    AND clock = $clock
    AND "precision" = $precision
ORDER BY n DESC, suite, device, baseline, policy_id IS NULL DESC, policy, p
