-- Reward
-- Mean reward, before smoothing, of the attempts of each step; the band is one standard deviation
-- to either side. A chart has at most 200 points, so steps of a long run are averaged.
-- Empty: The run has no rewards at a step: a rollout or a fine-tuning has none.
WITH steps AS (
    SELECT DISTINCT
        rule || ' ' || rule_version AS rule, step, rewarded, reward_mean, reward_std, smoothed_mean,
        zero_variance_groups, groups
    FROM run_curves
    WHERE run_id = $run AND step IS NOT NULL AND rewarded > 0
),
placed AS (
    SELECT
        *,
        min(step) OVER ()
        + (step - min(step) OVER ()) // ((max(step) OVER () - min(step) OVER ()) // 200 + 1)
        * ((max(step) OVER () - min(step) OVER ()) // 200 + 1) AS first_step
    FROM steps
)
SELECT
    rule, first_step AS step, sum(rewarded)::BIGINT AS n,
    sum(reward_mean * rewarded) / sum(rewarded) AS reward_mean,
    sqrt(greatest(
        sum((reward_std ** 2 + reward_mean ** 2) * rewarded) / sum(rewarded)
        - (sum(reward_mean * rewarded) / sum(rewarded)) ** 2, 0
    )) AS reward_std,
    sum(smoothed_mean * rewarded) / sum(rewarded) AS smoothed_mean,
    sum(zero_variance_groups)::BIGINT AS zero_variance_groups, sum(groups)::BIGINT AS groups
FROM placed
GROUP BY rule, first_step
ORDER BY rule, step
