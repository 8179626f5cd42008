-- Judged kernels
-- Kernels that this run judged, newest first.
SELECT
    evaluations.kernel_id, task_names.task, devices.name AS device, evaluations.status,
    evaluations.reason, evaluations.message, evaluations.created_at AS judged_at,
    evaluations.task_id
FROM evaluations
INNER JOIN devices ON devices.device_id = evaluations.device_id
LEFT JOIN task_names ON task_names.task_id = evaluations.task_id
WHERE evaluations.run_id = $run
ORDER BY judged_at DESC, evaluations.evaluation_id
