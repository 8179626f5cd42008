-- The session
SELECT
    sessions.*, policies."name" AS policy, task_names.task, runs."name" AS run
FROM sessions
LEFT JOIN policies ON policies.policy_id = sessions.policy_id
LEFT JOIN task_names ON task_names.task_id = sessions.task_id
LEFT JOIN runs ON runs.run_id = sessions.run_id
WHERE sessions.session_id = $session
ORDER BY sessions.session_id, task
