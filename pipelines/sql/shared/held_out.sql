-- Tasks of the test split and copies of them; empty unless the dataset is for training.
SELECT task_id, copy_of
FROM test_tasks
WHERE $purpose = 'train'
