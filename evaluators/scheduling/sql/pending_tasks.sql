-- One row per task that the newest audit has not seen on such a device, with the workload that
-- kernels are judged on there. Parameters: version (of the audit), device_name, device_kind (cpu or
-- cuda), task_ids (NULL for every task).
WITH audited AS (
    SELECT DISTINCT task_id, workload_id
    FROM task_audits
    WHERE
        auditor_version = $version AND origin IS NULL
        AND device_id IN (SELECT device_id FROM devices WHERE "name" = $device_name)
)
SELECT
    tasks.task_id,
    settings.chosen.workload_id AS workload_id,
    settings.chosen.axes AS axes,
    tasks.code AS task_code,
    task_names.task AS task_name
FROM tasks
INNER JOIN judged_workloads AS settings
    ON settings.task_id = tasks.task_id AND settings.kind = $device_kind
INNER JOIN task_names ON task_names.task_id = tasks.task_id
LEFT JOIN audited
    ON
        audited.task_id = tasks.task_id
        AND audited.workload_id = settings.chosen.workload_id
WHERE
    audited.task_id IS NULL
    AND ($task_ids IS NULL OR list_contains(CAST($task_ids AS VARCHAR[]), tasks.task_id))
ORDER BY task_names.suite, task_names."level", task_names.problem_id, task_name, tasks.task_id
