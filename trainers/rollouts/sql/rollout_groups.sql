-- One row per group of attempts that the lake has: how far it is, what it cost, and which kernels
-- are right.
-- An attempt that the endpoint failed is none, and pulled attempts belong to no group of this lake.
-- A kernel is right where it is correct somewhere, wrong nowhere and the task's own function, as for
-- training sets. It is unjudged where it has no verdict on the device, or on any if that is NULL.
-- `groups` (group_id) is registered. Parameters: device (its name).
WITH sampled AS (
    SELECT
        group_id, sample_index, finish_reason, kernel_id, task_id, prompt_tokens,
        completion_tokens, cost_usd
    FROM generations
    SEMI JOIN groups ON groups.group_id = generations.group_id
    WHERE generations.origin IS NULL
),
judged AS (
    SELECT
        outcomes.kernel_id, outcomes.task_id,
        bool_or(outcomes.correct)
            AND NOT bool_or(outcomes.status IN ('incorrect', 'rejected'))
            AND NOT bool_or(nonequivalent.kernel_id IS NOT NULL) AS correct,
        bool_or(coalesce(outcomes.device = CAST($device AS VARCHAR), $device IS NULL)) AS here
    FROM outcomes
    LEFT JOIN nonequivalent
        ON
            nonequivalent.kernel_id = outcomes.kernel_id
            AND nonequivalent.task_id = outcomes.task_id
    SEMI JOIN sampled
        ON sampled.kernel_id = outcomes.kernel_id AND sampled.task_id = outcomes.task_id
    GROUP BY outcomes.kernel_id, outcomes.task_id
)
SELECT
    sampled.group_id,
    count(*) FILTER (WHERE sampled.finish_reason IS DISTINCT FROM 'error') AS attempts,
    max(sampled.sample_index) + 1 AS next_index,
    CAST(
        sum(coalesce(sampled.prompt_tokens, 0) + coalesce(sampled.completion_tokens, 0)) AS BIGINT
    ) AS tokens,
    coalesce(sum(sampled.cost_usd), 0) AS cost_usd,
    coalesce(
        list(DISTINCT sampled.kernel_id) FILTER (WHERE sampled.kernel_id IS NOT NULL), []
    ) AS kernel_ids,
    coalesce(list(DISTINCT sampled.kernel_id) FILTER (WHERE judged.correct), []) AS correct_ids,
    coalesce(
        list(DISTINCT sampled.kernel_id)
            FILTER (WHERE sampled.kernel_id IS NOT NULL AND NOT coalesce(judged.here, false)),
        []
    ) AS unjudged_ids
FROM sampled
LEFT JOIN judged ON judged.kernel_id = sampled.kernel_id AND judged.task_id = sampled.task_id
GROUP BY sampled.group_id
