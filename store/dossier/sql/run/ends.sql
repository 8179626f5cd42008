-- Ends of the run, and its resumptions, in order.
SELECT outcome, created_at AS "at", error
FROM run_ends
WHERE run_id = $run_id
ORDER BY number
