-- One row per author, task and device: how many attempts it took until the first correct kernel.
-- Attempts count in the order in which they were made; those that an endpoint failed are none. A
-- kernel is correct if it is so at every workload of the device, and neither quarantined nor
-- nonequivalent. There is a row where a kernel of the author has a verdict.
--
-- key columns: task, policy, device, attempts, correct, attempts_until_correct, kernel_id
-- attempts: number of attempts of the author at the task
-- judged: number of them whose kernel has a verdict on the device
-- correct: number of them whose kernel is correct
-- attempts_until_correct: number of the first attempt with a correct kernel, from 1; NULL where no
--   kernel is correct
-- kernel_id: kernel of that attempt
-- generation_id: that attempt
WITH verdict_of AS (
    SELECT
        outcomes.kernel_id, outcomes.task_id, outcomes.device,
        bool_and(outcomes.correct)
        AND NOT bool_or(quarantined.kernel_id IS NOT NULL)
        AND NOT bool_or(nonequivalent.kernel_id IS NOT NULL) AS correct
    FROM outcomes
    LEFT JOIN quarantined ON quarantined.kernel_id = outcomes.kernel_id
    LEFT JOIN nonequivalent
        ON
            nonequivalent.kernel_id = outcomes.kernel_id
            AND nonequivalent.task_id = outcomes.task_id
    GROUP BY outcomes.kernel_id, outcomes.task_id, outcomes.device
),
attempts AS (
    SELECT
        policy_id, task_id, kernel_id, generation_id,
        row_number() OVER (
            PARTITION BY policy_id, task_id ORDER BY created_at, generation_id
        ) AS attempt,
        count(*) OVER (PARTITION BY policy_id, task_id) AS attempts
    FROM generations
    WHERE task_id IS NOT NULL AND finish_reason IS DISTINCT FROM 'error'
)
SELECT
    attempts.policy_id,
    any_value(policies."name") AS policy,
    attempts.task_id,
    any_value(task_names.task) AS task,
    verdict_of.device,
    any_value(attempts.attempts) AS attempts,
    count(*) AS judged,
    count(*) FILTER (WHERE verdict_of.correct) AS correct,
    min(attempts.attempt) FILTER (WHERE verdict_of.correct) AS attempts_until_correct,
    arg_min(attempts.kernel_id, attempts.attempt) FILTER (WHERE verdict_of.correct) AS kernel_id,
    arg_min(attempts.generation_id, attempts.attempt) FILTER (WHERE verdict_of.correct)
        AS generation_id
FROM attempts
INNER JOIN verdict_of
    ON
        verdict_of.kernel_id = attempts.kernel_id
        AND verdict_of.task_id = attempts.task_id
INNER JOIN task_names ON task_names.task_id = attempts.task_id
LEFT JOIN policies ON policies.policy_id = attempts.policy_id
GROUP BY attempts.policy_id, attempts.task_id, verdict_of.device
ORDER BY policy, attempts.policy_id, task, attempts.task_id, verdict_of.device
