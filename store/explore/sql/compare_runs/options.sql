-- Options that differ
SELECT
    "option", any_value("value") FILTER (WHERE run_id = $a) AS "A",
    any_value("value") FILTER (WHERE run_id = $b) AS "B"
FROM (
    SELECT
        runs.run_id, options."key" AS "option",
        json_extract_string(options."value", '$') AS "value"
    FROM runs, json_each(runs.config) AS options
    WHERE runs.run_id IN ($a, $b)
)
GROUP BY "option"
HAVING
    any_value("value") FILTER (WHERE run_id = $a)
    IS DISTINCT FROM any_value("value") FILTER (WHERE run_id = $b)
ORDER BY "option"
