-- The tasks that a name, a name with its suite before it, or the start of an id stands for.
SELECT DISTINCT task_id, suite, suite_revision, "name", title
FROM task_labels
WHERE
    "name" = $wanted
    OR suite || '/' || "name" = $wanted
    OR (length($wanted) >= 6 AND starts_with(task_id, $wanted))
ORDER BY ALL
