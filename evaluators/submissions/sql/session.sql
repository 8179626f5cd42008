-- The steps and attempts of a session.
SELECT
    (SELECT count(*) FROM session_steps WHERE session_id = $session_id) AS steps,
    (SELECT count(*) FROM generations WHERE trajectory_id = $session_id) AS turns
FROM sessions
WHERE session_id = $session_id
