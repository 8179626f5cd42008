-- Who wrote it for which task.
--
-- key columns: task, author, source
SELECT
    coalesce(task_names.suite || ' ' || task_names.task, generations.task_id) AS task,
    task_names.title,
    policies.name AS author,
    policies.stage,
    generations.source,
    generations.source_revision,
    generations.license,
    min(generations.created_at) AS first_seen
FROM generations
JOIN policies USING (policy_id)
LEFT JOIN task_names USING (task_id)
WHERE kernel_id = $kernel_id
GROUP BY ALL
ORDER BY ALL
