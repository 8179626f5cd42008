-- Every label of each task, or of the tasks that a text may name: as name, end of a name, or prefix.
-- A task without a label has the name that task_names gives it.
SELECT
    task.task_id,
    label.suite,
    label.suite_revision,
    coalesce(label."name", left(task.task_id, 12)) AS "name",
    label.title
FROM tasks AS task
LEFT JOIN task_labels AS label ON label.task_id = task.task_id
WHERE
    true
    AND ($wanted IS NULL OR ends_with($wanted, label."name") OR starts_with(task.task_id, lower($wanted)))
ORDER BY ALL
