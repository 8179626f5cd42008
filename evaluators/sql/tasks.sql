-- Every name of a task, and whether the task belongs to the suite that is judged.
SELECT task_id, "name", bool_or(suite = $suite) OVER (PARTITION BY task_id) AS judged
FROM task_labels
ORDER BY suite = $suite DESC, "name", task_id
