-- Card
-- Every option, hash and seed that made the dataset. The same snapshot, recipe and seed give the
-- same bytes.
SELECT options."key" AS "option", json_extract_string(options."value", '$') AS "value"
FROM datasets, json_each(datasets.recipe) AS options
WHERE datasets.dataset_id = $dataset
ORDER BY options."key"
