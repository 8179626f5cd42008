-- One row per rollout with a token whose ratio is outside 0.8 to 1.2, the range of PPO and GRPO.
-- The ratio is p by the trained policy before the update over p by the sampler (token_gaps). A
-- correction of the mismatch between both clips or masks by it. The other ratio of the loss, p
-- during the update over p before it, is in no row: it is 1 in the first pass over a batch.
--
-- key columns: run_id, step, generation_id, clipped_tokens, tokens, ratio_min, ratio_max
-- clipped_tokens: number of tokens whose ratio is outside 0.8 to 1.2
-- tokens: number of tokens of the loss
-- ratio_min: smallest ratio of a token
-- ratio_max: largest ratio of a token
-- sequence_ratio: product of the ratios of all tokens
-- gap_max: largest difference of log p between trainer and sampler, in nats
-- position: position of the token with the largest difference, from 0
-- token_id: id of that token
SELECT
    run_id, step, generation_id,
    count(*) FILTER (gap NOT BETWEEN ln(0.8) AND ln(1.2)) AS clipped_tokens,
    count(*) AS tokens,
    exp(min(gap)) AS ratio_min,
    exp(max(gap)) AS ratio_max,
    exp(sum(gap)) AS sequence_ratio,
    max(abs(gap)) AS gap_max,
    max_by("position", abs(gap)) AS "position",
    max_by(token_id, abs(gap)) AS token_id
FROM token_gaps
GROUP BY run_id, step, generation_id
HAVING clipped_tokens > 0
