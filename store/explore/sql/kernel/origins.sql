-- Attempts that produced it
SELECT
    left(generations.generation_id, 13) AS attempt, policies.name AS policy, runs.name AS run,
    generations.step, generations.sample_index AS sample,
    generations.finish_reason, generations.completion_tokens AS tokens, generations."source",
    generations.created_at AS written_at, generations.generation_id, generations.run_id
FROM generations
INNER JOIN policies ON policies.policy_id = generations.policy_id
LEFT JOIN runs ON runs.run_id = generations.run_id
WHERE generations.kernel_id = $kernel
ORDER BY written_at, generations.generation_id
