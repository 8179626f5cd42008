-- Sessions of agents
-- Imported transcripts of coding agents, newest first. kernels counts the distinct kernels that a
-- session wrote.
-- Empty: No session matches. `store import detect PATH` names the importer of a transcript.
WITH steps AS (
    SELECT session_id, count(*) AS steps
    FROM session_steps
    GROUP BY session_id
),
calls AS (
    SELECT session_id, count(*) AS calls, count(*) FILTER (WHERE is_error) AS failed_calls
    FROM tool_calls
    GROUP BY session_id
),
written AS (
    SELECT trajectory_id, count(DISTINCT kernel_id) AS kernels
    FROM generations
    WHERE trajectory_id IN (SELECT session_id FROM sessions)
    GROUP BY trajectory_id
)
SELECT
    left(sessions.session_id, 12) AS "session",
    coalesce(task_names.task, sessions.problem) AS task,
    policies."name" AS policy, sessions.harness, sessions.outcome,
    steps.steps, calls.calls, calls.failed_calls, written.kernels,
    sessions.prompt_tokens, sessions.completion_tokens, sessions.cost_usd,
    sessions.created_at AS started_at, sessions."source",
    sessions.session_id AS agent_session_id, sessions.task_id, count(*) OVER () AS total
FROM sessions
LEFT JOIN policies ON policies.policy_id = sessions.policy_id
LEFT JOIN task_names ON task_names.task_id = sessions.task_id
LEFT JOIN steps ON steps.session_id = sessions.session_id
LEFT JOIN calls ON calls.session_id = sessions.session_id
LEFT JOIN written ON written.trajectory_id = sessions.session_id
WHERE true
    AND policies."name" = $policy
    AND contains(lower(concat_ws(' ', task_names.task, problem, harness)), lower($q))
ORDER BY started_at DESC, sessions.session_id
