-- One row per run, step, group and term of the reward: the rewards of answers to one prompt.
-- flat groups teach nothing: their rewards are equal, and all advantages are 0.
--
-- key columns: run, step, group_id, rule, attempts, reward_mean, reward_std, flat
-- task_id: task of the prompt; NULL for a prompt that asks for no task of this lake
-- problem: name of the problem, where the lake has no such task
-- rule: reward rule, or term of a reward that was logged by terms
-- rule_version: version of the rule; 0 for a reward that was logged
-- attempts: number of rewarded answers
-- reward_mean: mean reward
-- reward_std: standard deviation of the rewards; NULL for one answer
-- reward_min: smallest reward
-- reward_max: largest reward
-- flat: whether all rewards are equal
SELECT
    rewards.run_id,
    runs."name" AS run,
    rewards.step,
    generations.group_id,
    any_value(generations.task_id) AS task_id,
    any_value(generations.problem) AS problem,
    any_value(generations.prompt_id) AS prompt_id,
    rewards.rule,
    rewards.rule_version,
    count(*) AS attempts,
    avg(rewards.raw) AS reward_mean,
    -- NULL if the square of a reward is out of range, which would end the query.
    CASE WHEN max(abs(rewards.raw)) < 1e150
        THEN stddev_samp(rewards.raw) FILTER (WHERE abs(rewards.raw) < 1e150) END AS reward_std,
    min(rewards.raw) AS reward_min,
    max(rewards.raw) AS reward_max,
    min(rewards.raw) = max(rewards.raw) AS flat
FROM rewards
INNER JOIN runs ON runs.run_id = rewards.run_id
INNER JOIN generations
    ON
        generations.generation_id = rewards.generation_id
        AND generations.run_id = rewards.run_id
WHERE generations.group_id IS NOT NULL
GROUP BY
    rewards.run_id, runs."name", rewards.step, generations.group_id, rewards.rule,
    rewards.rule_version
ORDER BY rewards.run_id, rewards.rule, rewards.rule_version, rewards.step, generations.group_id
