-- One row per session and clock whose arms differ in what a session has in common.
-- Early judges recorded no clock; their rows of a session have both states of the cache.
-- Hashes are compared, because the least and greatest text of each column takes several times the
-- memory.
SELECT session_id, clock
FROM (
    SELECT
        session_id, clock, "cache",
        md5_number(
            concat_ws(
                chr(10),
                kernel_id, task_id, workload_id, device_id, evaluation_id, coalesce(origin, '')
            )
        ) AS common
    FROM temp.tested_sessions
)
GROUP BY session_id, clock
HAVING
    min(common) <> max(common)
    OR (clock IS NOT NULL AND min("cache") <> max("cache"))
