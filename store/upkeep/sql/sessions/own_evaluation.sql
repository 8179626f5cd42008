-- One row per timing of another kernel, task or workload than its evaluation, or of a device of
-- another name or kind.
SELECT timings.timing_id, timings.evaluation_id
FROM temp.tested_timings AS timings
INNER JOIN lake.evaluations AS evaluations ON evaluations.evaluation_id = timings.evaluation_id
LEFT JOIN lake.devices AS timers ON timers.device_id = timings.device_id
LEFT JOIN lake.devices AS judges ON judges.device_id = evaluations.device_id
WHERE
    timings.kernel_id <> evaluations.kernel_id
    OR timings.task_id <> evaluations.task_id
    OR timings.workload_id <> evaluations.workload_id
    OR timers."name" <> judges."name"
    OR timers.kind <> judges.kind
