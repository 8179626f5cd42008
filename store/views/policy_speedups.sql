-- One row per author and row of pooled_speedups whose kernel the author wrote for the task.
-- policy_id is NULL in a further row of every kernel (attempted_kernels). leading_speedups leaves out
-- kernels that compute another function.
SELECT
    attempted_kernels.policy_id,
    speeds.task_id,
    speeds.workload_id,
    speeds.kernel_id,
    speeds.device_id,
    speeds.device,
    speeds.baseline,
    speeds.clock,
    speeds."precision",
    speeds.threads,
    speeds.sessions,
    speeds.n,
    speeds.kernel_ms,
    speeds.baseline_ms,
    speeds.speedup,
    speeds.speedup_low,
    speeds.speedup_high,
    speeds.session_id,
    speeds.evaluation_id,
    speeds.measured_at
FROM pooled_speedups AS speeds
INNER JOIN attempted_kernels
    ON
        attempted_kernels.kernel_id = speeds.kernel_id
        AND attempted_kernels.task_id = speeds.task_id
