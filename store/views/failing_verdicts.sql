-- One row per kernel, task, workload, device and evaluator whose newest failing version still counts.
-- failing: the evaluator found the kernel incorrect or rejected it. A newer version of the evaluator
-- that has judged the kernel there replaces that, whatever it says. A pulled evaluation is left out
-- if this lake has judged the kernel on another device (counted_evaluations.elsewhere).
SELECT kernel_id, task_id, workload_id, device_id, evaluator
FROM counted_evaluations
WHERE status <> 'evaluator_error' AND NOT elsewhere
GROUP BY kernel_id, task_id, workload_id, device_id, evaluator
HAVING
    max(evaluator_version) FILTER (WHERE status IN ('incorrect', 'rejected'))
    = max(evaluator_version)
