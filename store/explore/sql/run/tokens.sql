-- Tokens of answers
-- The answers of one step that teach most, by the size of their advantage, each with its first 300
-- tokens. Point at a token for its id, its log-probabilities and its advantage. A token without a
-- text of its own, such as the end of the answer, is shown by its id.
-- Empty: The run has no tokens at this step.
SELECT
    left(tokens.generation_id, 13) AS attempt, tokens.step,
    (
        SELECT string_agg(rewards.rule || ' ' || round(rewards.raw, 3), ', ' ORDER BY rewards.rule)
        FROM rewards
        WHERE rewards.run_id = $run AND rewards.generation_id = tokens.generation_id
    ) AS reward,
    tokens.advantage, len(tokens.completion_ids) AS length,
    left(generations.completion, coalesce(tokens.token_ends[300], 2000)) AS body,
    tokens.completion_ids[:300] AS ids, tokens.token_ends[:300] AS ends,
    tokens.loss_mask[:300] AS loss_mask, tokens.sampler_logprobs[:300] AS sampler_logprobs,
    tokens.old_logprobs[:300] AS trainer_logprobs, tokens.token_advantages[:300] AS advantages,
    count(*) OVER () AS total, tokens.generation_id
FROM rollout_tokens AS tokens
INNER JOIN generations
    ON generations.generation_id = tokens.generation_id AND generations.run_id = tokens.run_id
WHERE tokens.run_id = $run
    AND tokens.step = $step
    AND tokens.step IS NULL AND $no_step = 1
ORDER BY abs(tokens.advantage) DESC NULLS LAST, tokens.generation_id
