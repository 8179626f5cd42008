-- The first runs whose id begins with the given characters.
SELECT run_id
FROM runs
WHERE starts_with(run_id, $start)
ORDER BY run_id
LIMIT 6
