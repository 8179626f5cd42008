-- Datasets
-- Materialized datasets, newest first. Each is tied to a snapshot and a recipe.
-- Empty: No dataset has been made yet. `pipelines list` shows what makes one.
WITH contained AS (
    SELECT dataset_id, count(DISTINCT task_id) AS tasks, count(DISTINCT kernel_id) AS kernels
    FROM (
        SELECT
            dataset_id, task_id,
            unnest(CASE WHEN len(kernel_ids) = 0 THEN [NULL] ELSE kernel_ids END) AS kernel_id
        FROM dataset_rows
    )
    GROUP BY dataset_id
)
SELECT
    datasets.name || ' ' || left(datasets.dataset_id, 8) AS dataset,
    datasets.pipeline, datasets.dataset_type AS type, datasets.purpose,
    datasets."rows", datasets.tokens,
    contained.tasks, contained.kernels, datasets.seed, datasets.created_at, datasets.dataset_id,
    count(*) OVER () AS total
FROM datasets
LEFT JOIN contained ON contained.dataset_id = datasets.dataset_id
ORDER BY datasets.created_at DESC, datasets.dataset_id
