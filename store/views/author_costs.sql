-- One row per author and device: what its attempts cost for each correct kernel.
-- Tokens and dollars are those of all attempts of the author, on whatever device they were judged;
-- device_s is that of this device. device is NULL if none of its kernels has a verdict.
--
-- key columns: policy, device, attempts, correct, cost_usd_per_correct, device_s_per_correct
-- attempts: number of attempts of the author
-- kernels: number of different kernels among them
-- judged: number of kernels, on one task each, that have a verdict on the device
-- correct: number of those that are correct at every workload, and neither quarantined nor
--   nonequivalent
-- device_s: seconds that the evaluations of these kernels took on the device, by any protocol,
--   without waiting for other judges
-- tokens_per_correct: prompt and completion tokens of all attempts / correct; NULL where none is
--   correct or no attempt states its tokens
-- cost_usd_per_correct: US dollars of all attempts / correct; NULL where none is correct or no
--   attempt states its cost
-- device_s_per_correct: seconds of judging / correct; NULL where none is correct
WITH written AS (
    SELECT
        policy_id,
        count(*) AS attempts,
        count(DISTINCT kernel_id) AS kernels,
        sum(prompt_tokens)::BIGINT AS prompt_tokens,
        sum(completion_tokens)::BIGINT AS completion_tokens,
        sum(cost_usd) AS cost_usd
    FROM generations
    GROUP BY policy_id
),
answers AS (
    SELECT policy_id, kernel_id, task_id, device, bool_and(correct) AS correct
    FROM policy_outcomes
    WHERE policy_id IS NOT NULL
    GROUP BY policy_id, kernel_id, task_id, device
),
spent AS (
    SELECT
        evaluations.kernel_id, evaluations.task_id, devices."name" AS device,
        sum(
            evaluations.wall_s
            - coalesce(try_cast(try_cast(evaluations.parts_s AS JSON) ->> 'waiting' AS DOUBLE), 0)
        ) AS device_s
    FROM evaluations
    INNER JOIN devices ON devices.device_id = evaluations.device_id
    GROUP BY evaluations.kernel_id, evaluations.task_id, devices."name"
),
judged AS (
    SELECT
        answers.policy_id,
        answers.device,
        count(*) AS judged,
        count(*) FILTER (
            WHERE answers.correct AND quarantined.kernel_id IS NULL
            AND nonequivalent.kernel_id IS NULL
        ) AS correct,
        sum(spent.device_s) AS device_s
    FROM answers
    LEFT JOIN quarantined ON quarantined.kernel_id = answers.kernel_id
    LEFT JOIN nonequivalent
        ON
            nonequivalent.kernel_id = answers.kernel_id
            AND nonequivalent.task_id = answers.task_id
    LEFT JOIN spent
        ON
            spent.kernel_id = answers.kernel_id
            AND spent.task_id = answers.task_id
            AND spent.device = answers.device
    GROUP BY answers.policy_id, answers.device
)
SELECT
    written.policy_id,
    policies."name" AS policy,
    judged.device,
    written.attempts,
    written.kernels,
    coalesce(judged.judged, 0) AS judged,
    coalesce(judged.correct, 0) AS correct,
    written.prompt_tokens,
    written.completion_tokens,
    written.cost_usd,
    judged.device_s,
    (written.prompt_tokens + written.completion_tokens) / nullif(judged.correct, 0)
        AS tokens_per_correct,
    written.cost_usd / nullif(judged.correct, 0) AS cost_usd_per_correct,
    judged.device_s / nullif(judged.correct, 0) AS device_s_per_correct
FROM written
INNER JOIN policies ON policies.policy_id = written.policy_id
LEFT JOIN judged ON judged.policy_id = written.policy_id
ORDER BY policies."name", written.policy_id, judged.device
