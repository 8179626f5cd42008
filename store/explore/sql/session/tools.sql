-- Tools
-- Calls of the session by tool. failed counts those that the tool reported as errors.
SELECT
    tool, count(*) AS calls, count(*) FILTER (WHERE is_error) AS failed,
    min(step) AS first_step, max(step) AS last_step
FROM tool_calls
WHERE session_id = $session
GROUP BY tool
ORDER BY calls DESC, tool
