-- One row per kernel, task, workload and device that was judged, by a counted evaluation or not.
-- correct: a counted evaluation (counted_evaluations) found the kernel correct there. Evaluations by
-- the protocol training and faults of the judge are left out.
SELECT kernel_id, task_id, workload_id, device_id, bool_or(correct) AS correct
FROM (
    SELECT kernel_id, task_id, workload_id, device_id, false AS correct
    FROM evaluations
    WHERE status <> 'evaluator_error' AND protocol IS DISTINCT FROM 'training'
    UNION ALL
    SELECT kernel_id, task_id, workload_id, device_id, true AS correct
    FROM counted_evaluations
    WHERE status = 'correct'
)
GROUP BY kernel_id, task_id, workload_id, device_id
