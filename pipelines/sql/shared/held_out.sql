-- Tasks of the test split and copies of them; none but for training.
SELECT task_id, copy_of
FROM test_tasks
WHERE $purpose = 'train'
