-- Tasks and kernels of each row
-- Which task and kernels each row contains. Its number opens it above; its prompt shows the answers
-- to it, if the prompt was stored.
SELECT
    dataset_rows.row_index, dataset_rows.split, task_names.task, prompts.prompt_id,
    len(dataset_rows.kernel_ids) AS kernels, dataset_rows.kernel_ids[1] AS first_kernel_id,
    dataset_rows.task_id, dataset_rows.dataset_id
FROM dataset_rows
LEFT JOIN task_names ON task_names.task_id = dataset_rows.task_id
LEFT JOIN prompts ON prompts.prompt_id = dataset_rows.prompt_id
WHERE dataset_rows.dataset_id = $dataset
ORDER BY dataset_rows.row_index
