-- One row per kernel, task, workload, device and evaluator: the verdict that stands.
-- Within the newest evaluator version present any failure of the candidate wins over a pass: a
-- flaky or cheating kernel cannot be judged again until it passes. evaluator_error is a fault of
-- our own machinery and says nothing about the kernel: a group of nothing else has no verdict.
WITH versions AS (
    SELECT
        kernel_id, task_id, workload_id, device_id, evaluator, evaluator_version,
        {
            -- The newest failure decides; where there is none, the newest pass.
            'deciding': max({
                'failed': status <> 'correct', 'created_at': created_at,
                'evaluation_id': evaluation_id, 'status': status, 'reason': reason
            }),
            'evaluations': count(*),
            'last_judged_at': max(created_at)
        } AS judged
    FROM evaluations
    WHERE status <> 'evaluator_error'
    GROUP BY kernel_id, task_id, workload_id, device_id, evaluator, evaluator_version
),
newest AS (
    SELECT
        kernel_id, task_id, workload_id, device_id, evaluator,
        max(evaluator_version) AS evaluator_version,
        arg_max(judged, evaluator_version) AS judged
    FROM versions
    GROUP BY kernel_id, task_id, workload_id, device_id, evaluator
)
SELECT
    newest.kernel_id,
    newest.task_id,
    newest.workload_id,
    newest.device_id,
    newest.evaluator,
    newest.evaluator_version,
    newest.judged.deciding.status AS status,
    newest.judged.deciding.reason AS reason,
    newest.judged.deciding.evaluation_id AS evaluation_id,
    newest.judged.evaluations AS evaluations,
    newest.judged.last_judged_at AS last_judged_at,
    devices."name" AS device
FROM newest
LEFT JOIN devices ON devices.device_id = newest.device_id
