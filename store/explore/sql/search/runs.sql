-- Runs and authors by name or id
SELECT kind, name, run, created_at, run_id
FROM (
    SELECT
        kind, name, name || ' ' || left(run_id, 8) AS run, started_at AS created_at, run_id
    FROM runs
    WHERE contains(lower(name || ' ' || run_id), lower($q))
    UNION ALL
    SELECT
        'author', name, NULL, created_at, run_id
    FROM policies
    WHERE contains(lower(name || ' ' || policy_id), lower($q))
)
ORDER BY created_at DESC, kind, name, run_id
