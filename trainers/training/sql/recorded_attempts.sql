-- One row per attempt that a run's policy sampled after $step updates and whose tokens are stored. An
-- attempt that was sampled again after an interruption is the one that was sampled last.
SELECT
    generations.generation_id, generations.group_id, generations.sample_index,
    rollout_tokens.* EXCLUDE (generation_id)
FROM rollout_tokens
INNER JOIN generations ON generations.generation_id = rollout_tokens.generation_id
WHERE rollout_tokens.run_id = $run_id AND rollout_tokens.policy_step = $step
QUALIFY row_number() OVER (
    PARTITION BY generations.group_id, generations.sample_index
    ORDER BY rollout_tokens.created_at DESC, generations.generation_id
) = 1
ORDER BY generations.group_id, generations.sample_index
