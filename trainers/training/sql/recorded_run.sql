-- One row per run of contrastive: its options, the model that training began with, and the steps
-- before which it sampled the attempts whose tokens are stored.
SELECT
    runs.config, policies.config->>'$.start' AS start,
    (
        SELECT coalesce(list(DISTINCT policy_step ORDER BY policy_step), [])
        FROM rollout_tokens
        WHERE rollout_tokens.run_id = runs.run_id
    ) AS sampled
FROM runs
INNER JOIN policies ON policies.policy_id = $in_training
WHERE runs.run_id = $run_id
