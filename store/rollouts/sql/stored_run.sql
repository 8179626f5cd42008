-- A run with its configuration, and whether one of its processes has begun it before.
SELECT
    config,
    EXISTS (FROM run_ends WHERE run_id = $1)
    OR EXISTS (FROM metrics WHERE run_id = $1)
    OR EXISTS (FROM generations WHERE run_id = $1) AS has_begun
FROM runs
WHERE run_id = $1
