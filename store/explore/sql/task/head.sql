-- The task and its names
SELECT
    task_names.*, tasks.code, tasks.source, tasks.source_revision, tasks.license
FROM task_names
INNER JOIN tasks ON tasks.task_id = task_names.task_id
WHERE task_names.task_id = $task
ORDER BY task_names.task_id
