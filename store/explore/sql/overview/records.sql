-- Newest records
-- Sessions that are faster than eager and than any session before for their task and device, by
-- the lower end of the interval. Trivial tasks are left out.
SELECT
    task, speedup, speedup_low, speedup_high, device, clock, previous_low, policy, kernel_id,
    measured_at, task_id
FROM "history"
ANTI JOIN weak_tasks ON weak_tasks.task_id = "history".task_id
WHERE baseline = 'eager' AND speedup_low > 1
ORDER BY measured_at DESC, task, device, kernel_id
