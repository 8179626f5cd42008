-- Options of the run.
SELECT options."key" AS "option", json_extract_string(options."value", '$') AS "value"
FROM runs, json_each(runs.config) AS options
WHERE runs.run_id = $run_id
ORDER BY options."key"
