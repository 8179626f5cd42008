-- Records in between
-- Sessions after snapshot A that are faster than eager and than any session before. Trivial tasks
-- are left out.
-- Empty: No session after snapshot A set a new best speedup.
SELECT
    task, speedup, speedup_low, speedup_high, device, clock, previous_low, policy, kernel_id,
    measured_at, task_id
FROM "history"
ANTI JOIN weak_tasks ON weak_tasks.task_id = "history".task_id
WHERE baseline = 'eager' AND speedup_low > 1
    AND measured_at > (
        SELECT coalesce(max(committed_at), TIMESTAMP '1970-01-01')
        FROM commits
        WHERE snapshot_id <= $a
    )
ORDER BY measured_at DESC, task, device, kernel_id
