-- The datasets that hold it.
SELECT datasets.name, datasets.snapshot_id AS snapshot, datasets.purpose, count(*) AS rows
FROM dataset_rows
JOIN datasets USING (dataset_id)
WHERE list_contains(kernel_ids, $kernel_id)
GROUP BY ALL
ORDER BY ALL
