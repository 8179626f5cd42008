-- Verdicts of version 13 of the judge beside those of version 8 on the same kernels: H200, torch_default,
-- the task's own shape. equivalent is false for kernels that compute another function than the module.
WITH outcomes AS (
    SELECT
        kernel_id, evaluator_version AS version,
        -- One fault on any card is enough, as in the view verdicts.
        min_by(
            concat_ws(', ', status, reason, CASE WHEN equivalent THEN 'equivalent' END),
            CASE WHEN status = 'correct' THEN 1 ELSE 0 END
        ) AS outcome
    FROM evaluations
    INNER JOIN devices ON devices.device_id = evaluations.device_id
    INNER JOIN workloads ON workloads.workload_id = evaluations.workload_id
    WHERE
        devices."name" = 'H200' AND evaluations."precision" = 'torch_default' AND workloads."name" = 'default'
        AND status <> 'evaluator_error' AND evaluator_version IN (8, 13)
    GROUP BY kernel_id, evaluator_version
)
SELECT before.outcome AS version_8, since.outcome AS version_13, count(*) AS kernels
FROM outcomes AS since
INNER JOIN outcomes AS before ON before.kernel_id = since.kernel_id AND before.version = 8
WHERE since.version = 13
GROUP BY ALL
ORDER BY kernels DESC, version_8, version_13
