-- Rollouts
-- Answers with tokens, by step, for the newest 200 steps. surprisal is the mean of -log p by the
-- sampler, which estimates the entropy. flat groups have equal rewards and teach nothing. repeated
-- answers have the text of another answer of the step. gap rms is how far log p by the trainer,
-- before the update, is from log p by the sampler.
WITH groups AS (
    SELECT step, group_id, bool_and(flat) AS flat
    FROM reward_groups
    WHERE run_id = $run
        AND step >= $first
    GROUP BY step, group_id
),
flat AS (
    SELECT step, count(*) AS groups, count(*) FILTER (flat) AS flat_groups
    FROM groups
    GROUP BY step
),
repeated AS (
    SELECT step, sum(attempts - 1)::BIGINT AS repeated
    FROM repeated_answers
    WHERE run_id = $run
        AND step >= $first
    GROUP BY step
)
SELECT
    steps.step, steps.attempts, steps.tokens_mean, steps.tokens_max, steps.cut_share,
    steps.surprisal, flat.groups, flat.flat_groups, coalesce(repeated.repeated, 0) AS repeated,
    steps.gap_mean, steps.gap_rms
FROM rollout_steps AS steps
LEFT JOIN flat ON flat.step IS NOT DISTINCT FROM steps.step
LEFT JOIN repeated ON repeated.step IS NOT DISTINCT FROM steps.step
WHERE steps.run_id = $run
    AND steps.step >= $first
ORDER BY steps.step
