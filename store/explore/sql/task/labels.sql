-- Names
-- Revisions of a suite share names and differ in text, so they are not comparable.
SELECT
    labels.suite || ' ' || labels.suite_revision AS suite, labels."name" AS name, labels.title,
    labels."level", labels.family, splits.split, labels."source"
FROM task_labels AS labels
LEFT JOIN splits ON splits.suite = labels.suite AND splits.family = labels.family
WHERE labels.task_id = $task
ORDER BY labels.suite, labels.suite_revision, labels."name"
