-- The run
-- What was run, with which options.
SELECT field, value
FROM (
    SELECT 1 AS place, 'run' AS field, run_id AS value FROM runs WHERE run_id = $run
    UNION ALL
    SELECT 2, 'member', kind || ' ' || "name" FROM runs WHERE run_id = $run
    UNION ALL
    SELECT 3, 'started', strftime(started_at AT TIME ZONE 'UTC', '%Y-%m-%d %H:%M:%S')
    FROM runs WHERE run_id = $run
    UNION ALL
    SELECT 4, 'ended', strftime(ended_at AT TIME ZONE 'UTC', '%Y-%m-%d %H:%M:%S')
    FROM run_states WHERE run_id = $run
    UNION ALL
    SELECT 5, 'state', state FROM run_states WHERE run_id = $run
    UNION ALL
    SELECT 6, 'snapshot read', snapshot_id::VARCHAR FROM runs WHERE run_id = $run
    UNION ALL
    SELECT 7, 'option ' || options."key", json_extract_string(options."value", '$')
    FROM runs, json_each(runs.config) AS options
    WHERE runs.run_id = $run
)
ORDER BY place, field
LIMIT 80
