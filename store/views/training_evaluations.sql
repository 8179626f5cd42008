-- One row per evaluation by the protocol training of a kernel that no counted evaluation has judged.
-- Rewards read these rows where the lake has no verdict of the full protocol on the kernel, task,
-- workload and device. No ranking, table, dataset or exemplar reads this view.
SELECT
    evaluations.* REPLACE (
        CASE
            WHEN devices.kind = 'cpu' THEN 'torch_default'
            ELSE coalesce(evaluations."precision", 'torch_default')
        END AS "precision"
    ),
    devices."name" AS device
FROM standing_evaluations AS evaluations
INNER JOIN devices ON devices.device_id = evaluations.device_id
ANTI JOIN counted_evaluations AS counted
    ON
        counted.kernel_id = evaluations.kernel_id
        AND counted.task_id = evaluations.task_id
        AND counted.workload_id = evaluations.workload_id
        AND counted.device_id = evaluations.device_id
        AND counted.status <> 'evaluator_error'
WHERE
    evaluations.protocol = 'training'
    AND evaluations.origin IS NULL
    AND evaluations.status <> 'evaluator_error'
