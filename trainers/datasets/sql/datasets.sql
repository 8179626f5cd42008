-- One row per dataset of the lake, oldest first.
SELECT
    dataset_id, "name", pipeline, dataset_type, purpose, lake_id, snapshot_id, seed, content_hash,
    rows, path
FROM datasets
ORDER BY created_at, dataset_id
