-- One row per numbered task of a suite's revision, in the order of its numbers.
-- Parameters: suite, suite_revision.
SELECT label.task_id, label."level", label.problem_id, tasks.code AS reference
FROM task_labels AS label
INNER JOIN tasks ON tasks.task_id = label.task_id
WHERE label.suite = $suite AND label.suite_revision = $suite_revision
    AND label."level" IS NOT NULL AND label.problem_id IS NOT NULL
ORDER BY label."level", label.problem_id, label."name", label.task_id
