-- One row per row of a dataset: licenses of its texts, whether a kernel in it is quarantined, and
-- whether it may leave. `_rows_of_dataset` (row_index, task_id, kernel_ids), `_licenses`,
-- `_quarantined` and the keys of rows that stay behind are registered.
WITH texts AS (
    SELECT row_index, 'tasks' AS "table", task_id AS id
    FROM _rows_of_dataset
    UNION ALL
    SELECT row_index, 'kernels' AS "table", unnest(kernel_ids) AS id
    FROM _rows_of_dataset
)
SELECT
    texts.row_index,
    list_sort(list(DISTINCT licenses.license) FILTER (WHERE licenses.license IS NOT NULL))
        AS licenses,
    bool_or(quarantined.kernel_id IS NOT NULL) AS quarantined,
    NOT bool_or(gone_tasks.task_id IS NOT NULL OR gone_kernels.kernel_id IS NOT NULL) AS kept
FROM texts
LEFT JOIN _licenses AS licenses
    ON licenses."table" = texts."table" AND licenses.id = texts.id
LEFT JOIN _quarantined AS quarantined ON quarantined.kernel_id = texts.id
LEFT JOIN _left_out_tasks AS gone_tasks
    ON texts."table" = 'tasks' AND gone_tasks.task_id = texts.id
LEFT JOIN _left_out_kernels AS gone_kernels
    ON texts."table" = 'kernels' AND gone_kernels.kernel_id = texts.id
GROUP BY texts.row_index
ORDER BY texts.row_index
