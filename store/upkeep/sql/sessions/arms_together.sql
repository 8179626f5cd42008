-- One row per session and clock whose arms differ in what a session has in common.
-- Early judges recorded no clock; their rows of a session have both states of the cache.
SELECT session_id, clock
FROM temp.tested_sessions
GROUP BY session_id, clock
HAVING
    min(evaluation_id) <> max(evaluation_id)
    OR min(kernel_id) <> max(kernel_id)
    OR min(task_id) <> max(task_id)
    OR min(workload_id) <> max(workload_id)
    OR min(device_id) <> max(device_id)
    OR (clock IS NOT NULL AND min("cache") <> max("cache"))
    OR min(coalesce(origin, '')) <> max(coalesce(origin, ''))
