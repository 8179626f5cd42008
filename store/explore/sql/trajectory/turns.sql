-- Turns
-- The attempts of one trajectory in their order, with what each led to.
-- Empty: No attempt belongs to this trajectory.
SELECT
    generations.turn, left(generations.generation_id, 13) AS attempt, task_names.task,
    policies.name AS policy,
    generations.kernel_id,
    max_by(
        outcomes.status,
        {'failed': NOT outcomes.correct, 'at': outcomes.last_judged_at}
    ) AS status,
    generations.prompt_id, generations.completion_tokens AS tokens,
    generations.created_at AS written_at,
    generations.generation_id, generations.task_id
FROM generations
LEFT JOIN policies ON policies.policy_id = generations.policy_id
LEFT JOIN task_names ON task_names.task_id = generations.task_id
LEFT JOIN outcomes
    ON outcomes.kernel_id = generations.kernel_id AND outcomes.task_id = generations.task_id
WHERE generations.trajectory_id = $trajectory
GROUP BY ALL
ORDER BY generations.turn, written_at, generations.generation_id
