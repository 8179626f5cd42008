-- Attempts of the same group
-- Answers that were sampled together from one prompt.
SELECT
    left(others.generation_id, 13) AS attempt, others.sample_index AS sample, others.kernel_id,
    rewards.raw AS reward, rewards.advantage, others.finish_reason,
    others.completion_tokens AS tokens, others.generation_id
FROM generations AS this
INNER JOIN generations AS others
    ON others.group_id = this.group_id AND others.run_id IS NOT DISTINCT FROM this.run_id
LEFT JOIN rewards ON rewards.generation_id = others.generation_id AND rewards.run_id = others.run_id
WHERE this.generation_id = $attempt AND others.generation_id <> $attempt
ORDER BY others.sample_index, others.generation_id
