-- Datasets that contain it
SELECT
    datasets.name AS dataset, datasets.purpose, dataset_rows.split, count(*) AS "rows",
    datasets.snapshot_id AS made_at_snapshot, datasets.dataset_id
FROM dataset_rows
INNER JOIN datasets ON datasets.dataset_id = dataset_rows.dataset_id
WHERE list_contains(dataset_rows.kernel_ids, $kernel)
GROUP BY ALL
ORDER BY dataset, dataset_rows.split, datasets.dataset_id
