-- One row per kernel of a dataset that is quarantined by now.
SELECT DISTINCT quarantined.kernel_id
FROM (
    SELECT unnest(kernel_ids) AS kernel_id FROM dataset_rows WHERE dataset_id = $1
) AS held
INNER JOIN quarantined ON quarantined.kernel_id = held.kernel_id
ORDER BY quarantined.kernel_id
