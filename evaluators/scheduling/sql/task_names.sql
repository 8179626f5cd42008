-- Every name of a task, in the order in which a name that several tasks have is taken.
SELECT task_id, suite, suite_revision, "name"
FROM task_labels
ORDER BY suite, suite_revision, "name", task_id
