-- All levels
-- The columns of CUDA-L1's tables: one best kernel per task (by the lower bound of its speedup) and
-- policy, speedup over the baseline. n tasks have a correct kernel with a quiet session against it;
-- success counts tasks with a correct kernel, timed or not, and the next column those above 1.01×.
-- A task without a speedup is read in two ways: left out, and as 1.0. The median's interval is its
-- exact 95 % one over tasks. pending tasks wait for a verdict and count nowhere. weak tasks, which
-- an answer without work passes, are left out; one mean is with them. Policy any is the best of
-- everybody; it and the ten policies with the most tasks solved are shown.
-- Empty: No kernel has been judged yet: evaluators run.
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
        WHERE "level" IS NULL
    )
)
SELECT
    suite || ' ' || suite_revision AS suite, device, policy,
    p50, p50_low, p50_high, baseline, n, "precision", tasks, success, faster, geomean, mean, p25,
    p75, max,
    geomean_missing_as_1, mean_missing_as_1, mean_with_degenerate, weak, pending
FROM shown
WHERE (policies > 1 OR policy_id IS NOT NULL OR policies = 0) AND place <= 11
ORDER BY
    suite, device, policy_id IS NULL DESC, policy, policy_id, baseline <> 'eager', baseline,
    "precision"
