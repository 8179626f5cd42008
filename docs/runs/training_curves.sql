-- Each step of stage 3 by arm, over its trainings (seeds): answers, distinct kernels, the mean of the
-- reward as the rule gives it and that of the trainer's metric entropy, and the least and greatest mean
-- of a single training.
WITH trainings AS (
    SELECT DISTINCT run_steps.run_id, regexp_extract(generations.namespace, '^stage3/([a-z]+)/', 1) AS arm
    FROM run_steps
    INNER JOIN generations ON generations.generation_id = run_steps.generation_id
    WHERE starts_with(generations.namespace, 'stage3/')
),
-- run_curves has a row for each device that judged kernels of a training.
steps AS (
    SELECT DISTINCT
        trainings.arm, curves.run_id, curves.step, curves.attempts, curves.unique_kernels,
        curves.reward_mean, curves.entropy
    FROM run_curves AS curves
    INNER JOIN trainings ON trainings.run_id = curves.run_id
)
SELECT
    arm, step,
    count(*) AS trainings,
    sum(attempts)::BIGINT AS answers,
    sum(unique_kernels)::BIGINT AS kernels,
    round(avg(reward_mean), 4) AS reward,
    round(min(reward_mean), 4) AS reward_least,
    round(max(reward_mean), 4) AS reward_greatest,
    round(avg(entropy), 4) AS entropy,
    round(min(entropy), 4) AS entropy_least,
    round(max(entropy), 4) AS entropy_greatest
FROM steps
GROUP BY arm, step
ORDER BY step, arm
