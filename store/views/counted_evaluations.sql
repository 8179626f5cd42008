-- One row per evaluation that counts: this lake's own, and pulled ones where the lake has none.
-- A pulled evaluation (origin is not NULL) counts only for a kernel, task and device name that this
-- lake has not judged itself, whatever version, date or workload the pulled row states. Two devices
-- are the same here if they have the same name.
WITH own AS (
    SELECT DISTINCT evaluations.kernel_id, evaluations.task_id, devices."name" AS device
    FROM evaluations
    INNER JOIN devices ON devices.device_id = evaluations.device_id
    SEMI JOIN (SELECT kernel_id, task_id FROM evaluations WHERE origin IS NOT NULL) AS pulled
        ON pulled.kernel_id = evaluations.kernel_id AND pulled.task_id = evaluations.task_id
    WHERE evaluations.origin IS NULL AND evaluations.status <> 'evaluator_error'
)
SELECT *
FROM evaluations
WHERE origin IS NULL
UNION ALL
SELECT pulled.*
FROM evaluations AS pulled
INNER JOIN devices ON devices.device_id = pulled.device_id
ANTI JOIN own
    ON
        own.kernel_id = pulled.kernel_id
        AND own.task_id = pulled.task_id
        AND own.device = devices."name"
WHERE pulled.origin IS NOT NULL
