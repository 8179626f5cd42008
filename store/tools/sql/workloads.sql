-- Input settings of a task.
SELECT "name", axes, dtype FROM workloads WHERE task_id = $task_id ORDER BY ALL
