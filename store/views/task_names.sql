-- One row per task: the label that tables show, its split, and whether it is degenerate.
-- A text that is part of several suites or revisions has several labels; this view shows the first
-- one in the order below. split and degenerate consider every label that counts (counted_labels),
-- so that no other name lets a test task through; a pulled split counts only for a task without an
-- own one. A trivial task, which an answer without its inputs passes, is degenerate as well,
-- whatever its labels say.
WITH labels AS (
    SELECT
        label.task_id,
        arg_min(
            {
                'suite': label.suite, 'suite_revision': label.suite_revision,
                'level': label."level", 'problem_id': label.problem_id,
                'task': label.task, 'title': label.title, 'family': label.family
            },
            {
                'suite': label.suite, 'suite_revision': label.suite_revision,
                'level': coalesce(label."level", 2147483647),
                'problem_id': coalesce(label.problem_id, 2147483647), 'task': label.task
            }
        ) AS shown,
        coalesce(bool_or(label.degenerate), false) AS degenerate,
        CASE
            WHEN bool_or(label.split = 'test') FILTER (WHERE label.own_split) THEN 'test'
            WHEN bool_or(label.own_split) THEN 'train'
            WHEN bool_or(label.split = 'test') THEN 'test'
            WHEN bool_or(label.split = 'train') THEN 'train'
        END AS split
    FROM counted_labels AS label
    GROUP BY label.task_id
)
SELECT
    tasks.task_id,
    labels.shown.suite AS suite,
    labels.shown.suite_revision AS suite_revision,
    labels.shown."level" AS "level",
    labels.shown.problem_id AS problem_id,
    -- A task nobody has named is still shown by something.
    coalesce(labels.shown.task, left(tasks.task_id, 12)) AS task,
    labels.shown.title AS title,
    labels.shown.family AS family,
    coalesce(labels.degenerate, false)
    OR tasks.task_id IN (SELECT task_id FROM weak_workloads) AS degenerate,
    labels.split
FROM tasks
LEFT JOIN labels ON labels.task_id = tasks.task_id
