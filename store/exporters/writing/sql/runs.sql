-- The first runs with a name, or with an id that begins with it.
-- Parameters: wanted, most.
SELECT run_id
FROM runs
WHERE starts_with(run_id, $wanted) OR "name" = $wanted
ORDER BY run_id
LIMIT $most
