-- Policies and datasets that it made
SELECT kind, name, policy_id, dataset_id, created_at
FROM (
    SELECT 'policy' AS kind, name, policy_id, NULL AS dataset_id, created_at
    FROM policies
    WHERE run_id = $run
    UNION ALL
    SELECT 'dataset', name, NULL, dataset_id, created_at FROM datasets WHERE run_id = $run
)
ORDER BY created_at, kind, name, policy_id, dataset_id
