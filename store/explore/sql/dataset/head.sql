-- The dataset
SELECT *
FROM datasets
WHERE dataset_id = $dataset
ORDER BY dataset_id
