-- The attempt
SELECT
    generations.*, policies.name AS policy, task_names.task, runs."name" AS run,
    run_steps.step AS known_step,
    rewards.raw AS reward, rewards.advantage,
    rewards."rule" || ' ' || rewards.rule_version AS "rule"
FROM generations
LEFT JOIN policies ON policies.policy_id = generations.policy_id
LEFT JOIN task_names ON task_names.task_id = generations.task_id
LEFT JOIN runs ON runs.run_id = generations.run_id
LEFT JOIN run_steps ON run_steps.generation_id = generations.generation_id
LEFT JOIN rewards
    ON rewards.generation_id = generations.generation_id AND rewards.run_id = generations.run_id
WHERE generations.generation_id = $attempt
ORDER BY generations.generation_id, "rule"
