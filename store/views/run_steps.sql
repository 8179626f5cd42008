-- One row per generation of a training or rollout run: the step at which it was sampled.
-- If the attempt states no step, the step comes from its reward, from the reward of another attempt
-- in its group, or from the round of the policy that wrote it; otherwise step is NULL. created_at
-- is that of the attempt.
--
-- created_at: when the attempt was made
-- kernel_id: kernel of the attempt; NULL if the answer contains none
WITH rewarded AS (
    SELECT run_id, generation_id, min(step) AS step
    FROM rewards
    GROUP BY run_id, generation_id
),
attempts AS (
    SELECT
        generations.run_id, generations.generation_id, generations.task_id,
        generations.kernel_id, generations.policy_id, generations.prompt_id,
        -- An attempt sampled alone is a group of its own.
        coalesce(generations.group_id, generations.generation_id) AS group_id,
        generations.created_at,
        coalesce(generations.step, rewarded.step) AS step
    FROM generations
    INNER JOIN runs ON runs.run_id = generations.run_id
    LEFT JOIN rewarded
        ON
            rewarded.generation_id = generations.generation_id
            AND rewarded.run_id = generations.run_id
    WHERE runs.kind IN ('training', 'rollout')
)
SELECT
    attempts.* EXCLUDE (step),
    coalesce(
        attempts.step,
        min(attempts.step) OVER (PARTITION BY attempts.run_id, attempts.group_id),
        policies.round
    ) AS step
FROM attempts
LEFT JOIN policies ON policies.policy_id = attempts.policy_id
