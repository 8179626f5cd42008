-- One row per task and kind of device: the workload that kernels are judged on there.
-- It is the workload made for this kind of device if there is one, otherwise the task as written.
-- If this lake has its own workloads of a task, a pulled workload does not replace them.
--
-- kind: kind of device, cpu or cuda
-- chosen: the workload: its workload_id and axes (a struct)
WITH known AS (
    SELECT *, bool_or(origin IS NULL) OVER (PARTITION BY task_id) AS has_own
    FROM workloads
)
SELECT
    known.task_id,
    kinds.kind,
    arg_min(
        {'workload_id': known.workload_id, 'axes': known.axes},
        {
            'place': CASE
                WHEN known.has_own AND known.origin IS NOT NULL AND known.axes <> '{}' THEN 3
                WHEN known."name" = kinds.kind THEN 1
                ELSE 2
            END,
            'workload_id': known.workload_id
        }
    ) AS chosen
FROM known
CROSS JOIN (SELECT unnest(['cpu', 'cuda']) AS kind) AS kinds
WHERE known."name" IN (kinds.kind, 'default')
GROUP BY known.task_id, kinds.kind
