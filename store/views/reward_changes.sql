-- One row per run, prompt, term of the reward and step after the first: whether answers got better.
-- Prompts that ask for the same task or problem count as one, whatever else they show. change is
-- above 0 if the answers of the step have a higher mean reward than those of the step before, at
-- which the run answered this prompt last.
--
-- key columns: run, problem, rule, previous_step, step, previous_reward, reward, change
-- problem: task label or name of the problem, or the prompt's id if it has neither
-- rule: reward rule, or term of a reward that was logged by terms
-- rule_version: version of the rule; 0 for a reward that was logged
-- attempts: number of rewarded answers of the step
-- reward: mean reward of the step
-- previous_step: step before at which the run answered the prompt
-- previous_reward: mean reward of that step
-- change: reward - previous_reward
-- generation_id: answer with the highest reward of the step
-- previous_generation_id: answer with the highest reward of the previous step
WITH answered AS (
    SELECT
        rewards.run_id, rewards.rule, rewards.rule_version, rewards.step,
        coalesce(generations.task_id, generations.problem, generations.prompt_id) AS asked,
        generations.task_id,
        count(*) AS attempts,
        avg(rewards.raw) AS reward,
        max({'raw': rewards.raw, 'generation_id': rewards.generation_id}).generation_id
            AS generation_id
    FROM rewards
    INNER JOIN generations
        ON
            generations.generation_id = rewards.generation_id
            AND generations.run_id = rewards.run_id
    GROUP BY
        rewards.run_id, rewards.rule, rewards.rule_version, rewards.step, asked,
        generations.task_id
),
compared AS (
    SELECT
        *,
        lag(step) OVER steps AS previous_step,
        lag(reward) OVER steps AS previous_reward,
        lag(generation_id) OVER steps AS previous_generation_id
    FROM answered
    WHERE asked IS NOT NULL AND step IS NOT NULL
    WINDOW steps AS (PARTITION BY run_id, rule, rule_version, asked, task_id ORDER BY step)
)
SELECT
    compared.run_id,
    runs."name" AS run,
    compared.task_id,
    coalesce(task_names.task, compared.asked) AS problem,
    compared.rule,
    compared.rule_version,
    compared.previous_step,
    compared.step,
    compared.attempts,
    compared.previous_reward,
    compared.reward,
    compared.reward - compared.previous_reward AS change,
    compared.previous_generation_id,
    compared.generation_id
FROM compared
INNER JOIN runs ON runs.run_id = compared.run_id
LEFT JOIN task_names ON task_names.task_id = compared.task_id
WHERE compared.previous_step IS NOT NULL
ORDER BY
    compared.run_id, compared.rule, compared.rule_version, compared.step, change, problem
