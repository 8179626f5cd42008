-- Tasks by name, title or id
SELECT task, title, suite || ' ' || suite_revision AS suite, "level", family, task_id
FROM task_names
WHERE contains(lower(coalesce(title, '') || ' ' || task || ' ' || coalesce(family, '')), lower($q))
    OR (length($q) >= 6 AND starts_with(task_id, lower($q)))
ORDER BY suite, "level", task, task_id
