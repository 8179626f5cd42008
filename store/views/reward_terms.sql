-- One row per run, step and term of the reward: its mean and spread.
-- A term is a reward rule of one version. A run that logs its reward by terms has one for each.
--
-- key columns: run, step, rule, attempts, reward_mean, reward_std, reward_min, reward_max
-- rule: reward rule, or term of a reward that was logged by terms
-- rule_version: version of the rule; 0 for a reward that was logged
-- attempts: number of rewarded answers
-- reward_mean: mean reward
-- reward_std: standard deviation of the rewards
-- reward_min: smallest reward
-- reward_max: largest reward
-- zero_share: share of the rewards that are 0 (0 to 1)
SELECT
    rewards.run_id,
    runs."name" AS run,
    rewards.step,
    rewards.rule,
    rewards.rule_version,
    count(*) AS attempts,
    avg(rewards.raw) AS reward_mean,
    -- NULL if the square of a reward is out of range, which would end the query.
    CASE WHEN max(abs(rewards.raw)) < 1e150
        THEN stddev_samp(rewards.raw) FILTER (WHERE abs(rewards.raw) < 1e150) END AS reward_std,
    min(rewards.raw) AS reward_min,
    max(rewards.raw) AS reward_max,
    avg(CAST(rewards.raw = 0 AS INTEGER)) AS zero_share
FROM rewards
INNER JOIN runs ON runs.run_id = rewards.run_id
GROUP BY rewards.run_id, runs."name", rewards.step, rewards.rule, rewards.rule_version
ORDER BY rewards.run_id, rewards.rule, rewards.rule_version, rewards.step
