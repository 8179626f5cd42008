-- How many rows of each table belong to the run.
SELECT "table", "rows"
FROM (
    SELECT 'generations' AS "table", count(*) AS "rows" FROM generations WHERE run_id = $run_id
    UNION ALL
    SELECT 'evaluations', count(*) FROM evaluations WHERE run_id = $run_id
    UNION ALL
    SELECT 'rewards', count(*) FROM rewards WHERE run_id = $run_id
    UNION ALL
    SELECT 'metrics', count(*) FROM metrics WHERE run_id = $run_id
    UNION ALL
    SELECT 'policies', count(*) FROM policies WHERE run_id = $run_id
    UNION ALL
    SELECT 'claims', count(*) FROM claims WHERE run_id = $run_id
    UNION ALL
    SELECT 'findings', count(*) FROM findings WHERE run_id = $run_id
    UNION ALL
    SELECT 'scans', count(*) FROM scans WHERE run_id = $run_id
    UNION ALL
    SELECT 'sessions', count(*) FROM sessions WHERE run_id = $run_id
    UNION ALL
    SELECT 'datasets', count(*) FROM datasets WHERE run_id = $run_id
)
WHERE "rows" > 0
ORDER BY "table"
