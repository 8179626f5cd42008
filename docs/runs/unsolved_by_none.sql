-- The held-out tasks of known families at which arm none has no correct answer: whether a task of the
-- family that trains has its operation, and the most frequent line of the answers of none that
-- computes the operation, with the number of answers that have it.
WITH answers AS (
    SELECT
        generations.task_id, task_names.title,
        replace(task_names.family, ':held-out', '') AS family,
        regexp_extract(task_names.title, ': ([^,]+),', 1) AS operation,
        (generations.kernel_id, generations.task_id) IN (
            SELECT (kernel_id, task_id) FROM verdicts WHERE correct
        ) AS correct,
        trim(regexp_extract_all(kernels.code, '(?m)^ +v = .*$')[-1]) AS line
    FROM generations
    INNER JOIN task_names ON task_names.task_id = generations.task_id
    LEFT JOIN kernels ON kernels.kernel_id = generations.kernel_id
    WHERE
        starts_with(generations.namespace, 'arms/none/')
        AND ends_with(task_names.family, ':held-out')
),
tasks AS (
    SELECT
        task_id, title, family, operation,
        count(*) AS answers, mode(line ORDER BY line) AS line, count(line) AS lines
    FROM answers
    GROUP BY task_id, title, family, operation
    HAVING NOT bool_or(coalesce(correct, false))
)
SELECT
    tasks.title,
    tasks.task_id[:12] AS task,
    EXISTS (
        SELECT 1
        FROM task_names
        WHERE
            task_names.split = 'train'
            AND task_names.family = tasks.family
            AND contains(concat(',', split_part(task_names.title, ':', 2)), concat(', ', tasks.operation, ','))
    ) AS taught,
    tasks.answers, tasks.line,
    count(*) FILTER (answers.line = tasks.line) AS times
FROM tasks
INNER JOIN answers ON answers.task_id = tasks.task_id
GROUP BY tasks.title, tasks.task_id, tasks.family, tasks.operation, tasks.answers, tasks.line
ORDER BY tasks.title, task
