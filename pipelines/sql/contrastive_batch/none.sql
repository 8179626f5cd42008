-- No exemplars: one prompt per task that shows the reference alone.
-- `draws` (row_index, task_id, draw) is registered.
SELECT
    row_index, task_id, draw,
    CAST(NULL AS VARCHAR) AS kernel_id,
    CAST(NULL AS DOUBLE) AS score,
    CAST(NULL AS BOOLEAN) AS beside_reference
FROM draws
WHERE draw = 0
