-- One row per kernel that is an attempt at a task of the test split; none but for training.
SELECT DISTINCT generations.kernel_id
FROM generations
INNER JOIN task_names ON task_names.task_id = generations.task_id
WHERE
    $purpose = 'train'
    AND task_names.split = 'test'
    AND generations.kernel_id IS NOT NULL
