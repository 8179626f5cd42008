-- One row: a run's options, the model that contrastive began to train, and the steps before which the
-- run sampled the attempts whose tokens are stored. Another run than one of contrastive has no model.
SELECT
    runs.config, policies.config->>'$.start' AS start,
    (
        SELECT coalesce(list(DISTINCT policy_step ORDER BY policy_step), [])
        FROM rollout_tokens
        WHERE rollout_tokens.run_id = runs.run_id
    ) AS sampled
FROM runs
LEFT JOIN policies ON policies.policy_id = $in_training
WHERE runs.run_id = $run_id
