-- Answers
-- Attempts that were given this prompt, with the verdicts on their kernels.
SELECT
    left(generations.generation_id, 13) AS attempt, policies.name AS policy, runs.name AS run,
    generations.sample_index AS sample,
    generations.kernel_id,
    max_by(
        outcomes.status,
        {'failed': NOT outcomes.correct, 'at': outcomes.last_judged_at}
    ) AS status,
    generations.completion_tokens AS tokens, generations.created_at AS written_at,
    generations.generation_id, generations.run_id
FROM generations
LEFT JOIN policies ON policies.policy_id = generations.policy_id
LEFT JOIN runs ON runs.run_id = generations.run_id
LEFT JOIN outcomes
    ON outcomes.kernel_id = generations.kernel_id AND outcomes.task_id = generations.task_id
WHERE generations.prompt_id = $prompt
GROUP BY ALL
ORDER BY written_at, generations.sample_index, generations.generation_id
