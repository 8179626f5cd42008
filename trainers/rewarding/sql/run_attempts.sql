-- One row per generation of a run, in the order of its steps.
SELECT generation_id, group_id, step
FROM run_steps
WHERE run_id = $run_id
ORDER BY step, created_at, generation_id
