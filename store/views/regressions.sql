-- One row per verdict that a version of the judge turned from correct to wrong.
-- A row compares two successive versions of one evaluator that judged the kernel on one task,
-- workload and device by one precision. In a version, one failure outweighs any pass (verdicts).
-- Faults of the judge and evaluations that do not count (counted_evaluations) are left out. A
-- later version may have found the kernel correct again: the newest verdict is in verdicts.
--
-- key columns: task, kernel_id, device, evaluator, previous_version, evaluator_version, status,
--   reason
-- evaluator_version: version that found the kernel wrong
-- previous_version: version before it that had judged the kernel, and found it correct
-- status: outcome by the newer version, such as incorrect
-- reason: kind of failure by the newer version
-- evaluation_id: evaluation by the newer version that decided its verdict
-- previous_evaluation_id: last evaluation by the previous version
-- regressed_at: when the newer version decided
WITH by_version AS (
    SELECT
        kernel_id, task_id, workload_id, device_id, evaluator, "precision", evaluator_version,
        max({
            'failed': status <> 'correct', 'created_at': created_at,
            'evaluation_id': evaluation_id, 'status': status, 'reason': reason
        }) AS deciding
    FROM counted_evaluations
    WHERE status <> 'evaluator_error'
    GROUP BY
        kernel_id, task_id, workload_id, device_id, evaluator, "precision", evaluator_version
),
compared AS (
    SELECT
        *,
        lag(evaluator_version) OVER versions AS previous_version,
        lag(deciding) OVER versions AS previous
    FROM by_version
    WINDOW versions AS (
        PARTITION BY kernel_id, task_id, workload_id, device_id, evaluator, "precision"
        ORDER BY evaluator_version
    )
)
SELECT
    compared.kernel_id,
    compared.task_id,
    task_names.task,
    compared.workload_id,
    devices."name" AS device,
    compared.evaluator,
    compared."precision",
    compared.previous_version,
    compared.evaluator_version,
    compared.deciding.status AS status,
    compared.deciding.reason AS reason,
    compared.previous.evaluation_id AS previous_evaluation_id,
    compared.deciding.evaluation_id AS evaluation_id,
    compared.deciding.created_at AS regressed_at
FROM compared
INNER JOIN task_names ON task_names.task_id = compared.task_id
LEFT JOIN devices ON devices.device_id = compared.device_id
WHERE compared.deciding.failed AND NOT compared.previous.failed
ORDER BY regressed_at, compared.kernel_id, compared.task_id, device, compared.workload_id
