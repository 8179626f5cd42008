-- Verdicts
-- Every evaluation but those at other shapes, newest first. Within the newest version of an
-- evaluator, one failure outweighs any pass.
-- Empty: No evaluator has judged this kernel yet. `evaluators run --kernel ID` judges it.
SELECT
    devices.name AS device, evaluations.status, evaluations.reason, evaluations.message,
    workloads.name AS workload,
    CASE WHEN evaluations.status = 'correct' THEN evaluations.equivalent END AS equivalent,
    array_to_string(evaluations.flags, ', ') AS flags,
    evaluations.max_scaled_error AS error_of_tolerance, evaluations.precision_class,
    evaluations."precision",
    evaluations.evaluator || ' ' || evaluations.evaluator_version AS evaluator,
    evaluations.created_at AS judged_at
FROM evaluations
INNER JOIN devices ON devices.device_id = evaluations.device_id
INNER JOIN workloads ON workloads.workload_id = evaluations.workload_id
WHERE evaluations.kernel_id = $kernel AND evaluations.protocol IS DISTINCT FROM 'shape'
ORDER BY judged_at DESC, evaluations.evaluation_id
