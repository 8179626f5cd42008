-- The run, with its state and its end.
SELECT runs.* EXCLUDE (finished_at), states.state, states.ended_at, states.seconds, states.error
FROM runs
INNER JOIN run_states AS states ON states.run_id = runs.run_id
WHERE runs.run_id = $run_id
