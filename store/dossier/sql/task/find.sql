-- The tasks with a name, with a suite and a name, or with an id prefix.
SELECT DISTINCT task_id, suite, suite_revision, "name", title
FROM task_labels
WHERE
    "name" = $wanted
    OR suite || '/' || "name" = $wanted
    OR (length($wanted) >= 6 AND starts_with(task_id, $wanted))
ORDER BY ALL
