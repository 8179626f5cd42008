-- Tasks of the test split among the rows picked for training. `picked` is registered.
SELECT DISTINCT picked.task_id, task_names."name"
FROM picked
INNER JOIN task_names ON task_names.task_id = picked.task_id
WHERE task_names.split = 'test'
ORDER BY task_names."name", picked.task_id
