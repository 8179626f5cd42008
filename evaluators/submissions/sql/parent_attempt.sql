-- The attempt at a task with this id, and the session that continues it.
SELECT generations.generation_id, sessions.session_id
FROM generations
LEFT JOIN sessions ON sessions.session_id = generations.trajectory_id
WHERE generations.generation_id = $generation_id AND generations.task_id = $task_id
