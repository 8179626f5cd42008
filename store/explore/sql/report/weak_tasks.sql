-- Trivial tasks
-- Tasks whose newest audit accepts a constant, the inputs or an earlier answer. A speedup on such a
-- task means little.
-- Empty: No task is known to be trivial: evaluators tasks looks.
SELECT
    task_names.task, left(task_names.title, 60) AS title,
    array_to_string(audit.passes, ', ') AS passes,
    audit.repeatable, devices."name" AS device,
    count(*) OVER () AS total
FROM (
    FROM task_audits
    QUALIFY
        rank() OVER (
            PARTITION BY task_id
            ORDER BY {'own': origin IS NULL, 'version': auditor_version} DESC
        ) = 1
) AS audit
INNER JOIN task_names ON task_names.task_id = audit.task_id
INNER JOIN devices ON devices.device_id = audit.device_id
WHERE audit.weak
ORDER BY task_names.suite, task_names."level", task_names.problem_id, task, device, passes
LIMIT 40
