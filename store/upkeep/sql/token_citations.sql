-- One row per snapshot that a tag names, or that a dataset with kernels of a run was read from.
SELECT snapshot_id, 'the tag ' || "name" AS why
FROM current_tags
UNION
SELECT snapshot_id, 'the dataset ' || "name" AS why
FROM datasets
WHERE lake_id = $lake_id AND dataset_id IN (
    SELECT of_rows.dataset_id
    FROM (SELECT dataset_id, unnest(kernel_ids) AS kernel_id FROM dataset_rows) AS of_rows
    SEMI JOIN (FROM generations WHERE run_id = $run_id) USING (kernel_id)
)
ORDER BY ALL
