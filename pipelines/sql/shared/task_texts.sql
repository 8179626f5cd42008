-- Names and texts of the wanted tasks. `wanted` is registered: a small set of ids.
SELECT tasks.task_id, tasks.code, task_names."name", task_names.title
FROM tasks
INNER JOIN task_names ON task_names.task_id = tasks.task_id
SEMI JOIN wanted ON wanted.id = tasks.task_id
