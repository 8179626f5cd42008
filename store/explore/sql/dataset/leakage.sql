-- Leakage report
-- Rows and distinct tasks by the split of the row and the split of the task. A task of the test
-- split, or a copy of one, in a training row is a leak. withheld counts rows with a kernel that no
-- dataset may contain now.
WITH excluded AS (
    SELECT coalesce(list(kernel_id), []) AS kernel_ids
    FROM withheld
)
SELECT
    dataset_rows.split AS row_split,
    CASE
        WHEN test_tasks.copy_of IS NOT NULL THEN 'copy of test'
        ELSE coalesce(task_names.split, 'none')
    END AS task_split,
    count(*) AS "rows",
    count(DISTINCT dataset_rows.task_id) AS tasks,
    count(*) FILTER (WHERE list_has_any(dataset_rows.kernel_ids, excluded.kernel_ids)) AS withheld,
    CASE
        WHEN any_value(datasets.purpose) = 'train' AND bool_or(test_tasks.task_id IS NOT NULL)
            THEN 'leak' ELSE 'none'
    END AS leak
FROM dataset_rows
CROSS JOIN excluded
INNER JOIN datasets ON datasets.dataset_id = dataset_rows.dataset_id
LEFT JOIN task_names ON task_names.task_id = dataset_rows.task_id
LEFT JOIN test_tasks ON test_tasks.task_id = dataset_rows.task_id
WHERE dataset_rows.dataset_id = $dataset
GROUP BY row_split, task_split
ORDER BY row_split, task_split
