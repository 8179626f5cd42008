-- The run
SELECT runs.*, states.state, states.ended_at, states.seconds, states.error
FROM runs
INNER JOIN run_states AS states ON states.run_id = runs.run_id
WHERE starts_with(runs.run_id, $run)
ORDER BY runs.run_id
