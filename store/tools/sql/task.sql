-- The reference code of a task.
SELECT code FROM tasks WHERE task_id = $task_id
