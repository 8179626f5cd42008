-- The runs of searches that had one of these namespaces, in their order.
SELECT config
FROM runs
WHERE
    kind = 'rollout'
    AND "name" = 'search'
    AND list_has_any(
        CAST(json_extract_string(config, '$.search.namespaces') AS VARCHAR[]), $1
    )
ORDER BY started_at, run_id
