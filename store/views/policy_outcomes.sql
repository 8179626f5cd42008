-- One row per author and row of outcomes whose kernel the author wrote for the task.
-- policy_id is NULL in a further row of every kernel (attempted_kernels).
SELECT
    attempted_kernels.policy_id,
    outcomes.task_id,
    outcomes.workload_id,
    outcomes.kernel_id,
    outcomes.device,
    outcomes.correct
FROM outcomes
INNER JOIN attempted_kernels
    ON
        attempted_kernels.kernel_id = outcomes.kernel_id
        AND attempted_kernels.task_id = outcomes.task_id
