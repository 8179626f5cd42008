-- One row per kernel that is an attempt at a task of the test split, or the released code of a
-- baseline of one; none but for training.
SELECT generations.kernel_id
FROM generations
INNER JOIN task_names ON task_names.task_id = generations.task_id
WHERE
    $purpose = 'train'
    AND task_names.split = 'test'
    AND generations.kernel_id IS NOT NULL
UNION
SELECT claims.baseline_kernel_id
FROM claims
INNER JOIN task_names ON task_names.task_id = claims.task_id
WHERE
    $purpose = 'train'
    AND task_names.split = 'test'
    AND claims.baseline_kernel_id IS NOT NULL
