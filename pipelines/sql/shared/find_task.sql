-- Tasks that a name, a name with its suite before it, or the start of an id stands for.
SELECT tasks.task_id, any_value(task_names."name") AS "name"
FROM tasks
INNER JOIN task_names ON task_names.task_id = tasks.task_id
LEFT JOIN task_labels ON task_labels.task_id = tasks.task_id
WHERE task_labels."name" = $wanted
    OR task_labels.suite || '/' || task_labels."name" = $wanted
    OR (length($wanted) >= 4 AND starts_with(tasks.task_id, $wanted))
GROUP BY tasks.task_id
ORDER BY tasks.task_id
