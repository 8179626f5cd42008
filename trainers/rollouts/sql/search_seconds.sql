-- One row: the seconds of the finished rounds of searches that had exactly these namespaces.
SELECT coalesce(sum(metrics.value), 0) AS seconds
FROM metrics
INNER JOIN runs ON runs.run_id = metrics.run_id
WHERE
    metrics."name" = 'search/seconds'
    AND CAST(json_extract_string(runs.config, '$.search.namespaces') AS VARCHAR[]) = $1
