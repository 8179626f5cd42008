-- Every attempt to judge it, newest first.
--
-- key columns: device, status, reason, judged_at
SELECT
    devices.name AS device,
    workloads.name AS workload,
    evaluator || ' ' || evaluator_version AS evaluator,
    status,
    reason,
    message,
    equivalent,
    flags,
    max_scaled_error,
    evaluations.created_at AS judged_at
FROM evaluations
JOIN devices USING (device_id)
JOIN workloads USING (workload_id)
WHERE kernel_id = $kernel_id
ORDER BY judged_at DESC, evaluation_id
