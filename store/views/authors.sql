-- One row per kernel and task: the author whose attempt at the task produced the kernel first.
-- Attempts of this lake come before pulled ones, whatever time those state.
--
-- created_at: when the first attempt was made
-- generation_id: first attempt that gave the kernel
-- generations: number of attempts that gave the kernel
WITH firsts AS (
    SELECT
        kernel_id,
        task_id,
        min({
            'pulled': origin IS NOT NULL, 'created_at': created_at,
            'generation_id': generation_id, 'policy_id': policy_id
        }) AS first_attempt,
        count(*) AS generations
    FROM generations
    WHERE kernel_id IS NOT NULL
    GROUP BY kernel_id, task_id
)
SELECT
    firsts.kernel_id,
    firsts.task_id,
    firsts.first_attempt.policy_id AS policy_id,
    policies."name" AS policy,
    firsts.first_attempt.generation_id AS generation_id,
    firsts.first_attempt.created_at AS created_at,
    firsts.generations
FROM firsts
LEFT JOIN policies ON policies.policy_id = firsts.first_attempt.policy_id
