-- One row per task: whether a dataset of this purpose may ask for it, or why not.
-- A task without a split trains. Its split looks at all its labels (view task_names).
SELECT
    task_id,
    CASE
        WHEN coalesce(split, 'train') <> CASE $purpose WHEN 'eval' THEN 'test' ELSE 'train' END
            THEN CASE $purpose WHEN 'eval' THEN 'train split' ELSE 'test split' END
        WHEN degenerate AND NOT $degenerate THEN 'degenerate'
    END AS dropped
FROM task_names
