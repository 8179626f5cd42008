-- Names and texts of the tasks in a slab of rows. `slab` (task_id, kernel_ids) is registered.
SELECT tasks.task_id, tasks.code, tasks.license, task_names.task AS "name", task_names.title
FROM tasks
INNER JOIN task_names ON task_names.task_id = tasks.task_id
SEMI JOIN slab ON slab.task_id = tasks.task_id
