-- One row per session, clock and arm with several rows. Where no clock is recorded, the state of the
-- cache tells the clocks apart.
SELECT session_id, coalesce(clock, "cache") AS clock, arm
FROM temp.tested_sessions
GROUP BY session_id, coalesce(clock, "cache"), arm
HAVING count(*) > 1
