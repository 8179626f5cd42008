-- Tasks of the test split, and copies of them, among the rows picked for training. Registered are
-- `picked` and `held_out`.
SELECT DISTINCT picked.task_id, task_names.task AS "name"
FROM picked
INNER JOIN task_names ON task_names.task_id = picked.task_id
SEMI JOIN held_out ON held_out.task_id = picked.task_id
ORDER BY task_names.task, picked.task_id
