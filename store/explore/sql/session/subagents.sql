-- Subagents
-- Sessions that this one started.
SELECT
    left(sessions.session_id, 12) AS "session", policies."name" AS policy, sessions.harness,
    sessions.outcome, sessions.created_at AS started_at, sessions.session_id AS agent_session_id
FROM sessions
LEFT JOIN policies ON policies.policy_id = sessions.policy_id
WHERE sessions.parent_session_id = $session
ORDER BY started_at, sessions.session_id
