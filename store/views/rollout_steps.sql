-- One row per run and step with tokens of rollouts: length, surprisal, and how far sampler and trainer differ.
-- surprisal is the mean of -log p of the sampled tokens by the sampler. It estimates the entropy of
-- the policy without its other tokens, which no rollout keeps. Only tokens of the loss count
-- (loss_mask). gap is log p by the trained policy before the update (old_logprobs) minus log p by
-- the sampler: gap_mean is minus an estimate of the divergence between them, and gap_rms its size.
-- Both are 0 if the two compute the same. Figures of tokens that were not stored are NULL.
--
-- key columns: run, step, attempts, tokens_mean, cut_share, surprisal, gap_mean, gap_rms
-- attempts: number of answers, or of turns of them
-- tokens_mean: mean number of tokens of an answer
-- tokens_max: number of tokens of the longest answer
-- cut_share: share of answers that ended because they were too long (0 to 1)
-- surprisal: mean of -log p of the sampled tokens by the sampler, in nats per token
-- gap_mean: mean of log p by the trainer minus log p by the sampler, in nats per token
-- gap_rms: root mean square of that difference, in nats per token
WITH measured AS (
    SELECT
        run_id, step, generation_id,
        coalesce(list_sum(CAST(loss_mask AS INTEGER[])), len(sampler_logprobs)) AS tokens,
        -- Functions of whole lists are ten times as fast as those of their elements. The sum over a
        -- mask is a product, and where it masks nothing, a distance.
        coalesce(
            list_inner_product(sampler_logprobs, CAST(loss_mask AS FLOAT[])),
            list_sum(sampler_logprobs)
        ) AS sampler_sum,
        coalesce(
            list_inner_product(old_logprobs, CAST(loss_mask AS FLOAT[])), list_sum(old_logprobs)
        ) AS trainer_sum,
        CASE
            WHEN loss_mask IS NULL OR list_bool_and(loss_mask)
                THEN list_distance(sampler_logprobs, old_logprobs) ** 2
            ELSE list_sum(list_transform(
                old_logprobs,
                lambda logprob, i: CASE
                    WHEN loss_mask[i] THEN (logprob - sampler_logprobs[i]) ** 2
                END
            ))
        END AS squares
    FROM rollout_tokens
)
SELECT
    measured.run_id,
    runs."name" AS run,
    measured.step,
    count(*) AS attempts,
    avg(generations.completion_tokens) AS tokens_mean,
    max(generations.completion_tokens) AS tokens_max,
    avg(CAST(generations.finish_reason = 'length' AS INTEGER)) AS cut_share,
    -sum(measured.sampler_sum) / nullif(
        sum(measured.tokens) FILTER (measured.sampler_sum IS NOT NULL), 0
    ) AS surprisal,
    sum(measured.trainer_sum - measured.sampler_sum) / nullif(
        sum(measured.tokens) FILTER (measured.squares IS NOT NULL), 0
    ) AS gap_mean,
    sqrt(sum(measured.squares) / nullif(
        sum(measured.tokens) FILTER (measured.squares IS NOT NULL), 0
    )) AS gap_rms
FROM measured
INNER JOIN runs ON runs.run_id = measured.run_id
INNER JOIN generations
    ON
        generations.generation_id = measured.generation_id
        AND generations.run_id = measured.run_id
GROUP BY measured.run_id, runs."name", measured.step
ORDER BY measured.run_id, measured.step
