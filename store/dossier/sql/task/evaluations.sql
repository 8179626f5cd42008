-- What evaluators found, newest first: one row per attempt to judge a kernel for the task, without
-- other shapes, which the table of measured speedups counts.
--
-- key columns: kernel, device, status, reason, message
SELECT
    left(evaluations.kernel_id, 12) AS kernel,
    devices."name" AS device,
    evaluations.evaluator || ' ' || evaluations.evaluator_version AS evaluator,
    evaluations."precision",
    evaluations.status,
    evaluations.reason,
    evaluations.equivalent,
    evaluations.flags,
    left(evaluations.message, 90) AS message
FROM evaluations
INNER JOIN devices ON devices.device_id = evaluations.device_id
WHERE evaluations.task_id = $task_id AND evaluations.protocol IS DISTINCT FROM 'shape'
ORDER BY evaluations.created_at DESC, evaluations.evaluation_id
LIMIT 20
