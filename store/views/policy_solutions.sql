-- One row per author and row of outcomes with a correct kernel that the author wrote for the task.
-- policy_id is NULL in a further row of every kernel (attempted_kernels). solved_places leaves out
-- kernels that compute another function.
SELECT policy_id, task_id, workload_id, kernel_id, device
FROM policy_outcomes
WHERE correct
