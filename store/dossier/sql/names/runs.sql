-- The first runs with a name, or with an id that begins with it.
SELECT run_id
FROM runs
WHERE starts_with(run_id, lower($wanted)) OR "name" = $wanted
ORDER BY run_id
LIMIT 6
