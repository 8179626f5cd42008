-- One row per task and kind of device: the workload that kernels are judged on there.
-- It is the one made for this kind of device where there is one, else the task as it stands.
SELECT
    workloads.task_id,
    kinds.kind,
    arg_min(
        {'workload_id': workloads.workload_id, 'axes': workloads.axes},
        CASE workloads."name" WHEN kinds.kind THEN 1 ELSE 2 END
    ) AS chosen
FROM workloads
CROSS JOIN (SELECT unnest(['cpu', 'cuda']) AS kind) AS kinds
WHERE workloads."name" IN (kinds.kind, 'default')
GROUP BY workloads.task_id, kinds.kind
