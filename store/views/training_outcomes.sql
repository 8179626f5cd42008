-- One row per kernel, task, workload and device: the verdict of the protocol training (training_evaluations).
-- The newest version of the evaluator decides, and in it the newest failure. equivalent is false for
-- a correct kernel that shows to be another function than the task's; training does not look for it.
-- unverified: the answers of timed calls were not checked (flag timed_outputs_unverified).
SELECT
    kernel_id, task_id, workload_id, device_id, device,
    NOT deciding.failed AS correct,
    deciding.status AS status,
    deciding.reason AS reason,
    coalesce(deciding.equivalent, true) AS equivalent,
    deciding.unverified AS unverified,
    deciding.evaluation_id AS evaluation_id,
    last_judged_at
FROM (
    SELECT
        kernel_id, task_id, workload_id, device_id, device,
        max(created_at) AS last_judged_at,
        max({
            'version': evaluator_version, 'failed': status <> 'correct', 'created_at': created_at,
            'evaluation_id': evaluation_id, 'status': status, 'reason': reason,
            'equivalent': equivalent,
            'unverified': coalesce(list_contains(flags, 'timed_outputs_unverified'), false)
        }) AS deciding
    FROM training_evaluations
    GROUP BY kernel_id, task_id, workload_id, device_id, device
)
