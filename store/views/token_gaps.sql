-- One row per token of the loss that both the sampler and the trainer gave a probability.
-- gap is log p by the trained policy before the update (old_logprobs) minus log p by the sampler.
-- It is 0 if both compute the same. Name a run and a step: a step has about a million tokens.
--
-- key columns: run_id, step, generation_id, position, token_id, sampler_logprob, trainer_logprob, gap
-- position: position of the token in the completion, from 0
-- token_id: id of the token
-- sampler_logprob: log p of the token by the sampler
-- trainer_logprob: log p of the token by the trained policy before the update
-- gap: trainer_logprob - sampler_logprob, in nats
WITH tokens AS (
    SELECT
        run_id, step, generation_id,
        unnest(range(len(completion_ids))) AS "position",
        unnest(completion_ids) AS token_id,
        unnest(sampler_logprobs) AS sampler_logprob,
        unnest(old_logprobs) AS trainer_logprob,
        unnest(loss_mask) AS is_trained
    FROM rollout_tokens
    WHERE sampler_logprobs IS NOT NULL AND old_logprobs IS NOT NULL
)
SELECT * EXCLUDE (is_trained), trainer_logprob - sampler_logprob AS gap
FROM tokens
WHERE coalesce(is_trained, TRUE)
