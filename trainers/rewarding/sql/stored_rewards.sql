-- One row per stored reward of a run under one version of a rule, at $step or at every step.
SELECT
    rewards.generation_id, rewards.step, rewards."raw", rewards.smoothed, rewards.advantage,
    rewards.config, rewards.lake_id, rewards.snapshot_id,
    coalesce(generations.group_id, generations.generation_id) AS group_id
FROM rewards
INNER JOIN generations ON generations.generation_id = rewards.generation_id
WHERE
    rewards.run_id = $run_id AND rewards.rule = $rule AND rewards.rule_version = $rule_version
    AND ($step IS NULL OR rewards.step = $step)
ORDER BY rewards.step, rewards.generation_id
