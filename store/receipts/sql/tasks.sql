-- Tasks that a kernel was judged on, and whether they are trivial.
SELECT
    tasks.task_id,
    tasks.code,
    task_names.task AS "name",
    task_names.suite,
    task_names.suite_revision,
    tasks.source,
    tasks.source_revision,
    tasks.license,
    task_names.degenerate AS weak
FROM tasks
INNER JOIN task_names ON task_names.task_id = tasks.task_id
WHERE
    tasks.task_id IN (
        SELECT task_id
        FROM evaluations
        WHERE kernel_id = $kernel
    )
ORDER BY tasks.task_id
