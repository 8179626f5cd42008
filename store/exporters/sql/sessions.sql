-- One row per agent session, with the session that its tree begins with (root_id).
-- Parameter: run (NULL for every run).
WITH RECURSIVE trees AS (
    SELECT session_id AS root_id, session_id
    FROM sessions
    WHERE parent_session_id IS NULL AND ($run IS NULL OR run_id = $run)
    UNION
    SELECT trees.root_id, sessions.session_id
    FROM sessions
    INNER JOIN trees ON sessions.parent_session_id = trees.session_id
)
SELECT
    trees.root_id, sessions.*, policies."name" AS model,
    coalesce(task_names.task, sessions.problem) AS named
FROM trees
INNER JOIN sessions ON sessions.session_id = trees.session_id
INNER JOIN policies ON policies.policy_id = sessions.policy_id
LEFT JOIN task_names ON task_names.task_id = sessions.task_id
ORDER BY trees.root_id, sessions.created_at, sessions.session_id
