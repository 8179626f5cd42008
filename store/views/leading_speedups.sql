-- One row per author, task, workload, device, baseline, clock and precision: the best kernel.
-- That is the kernel with the highest lower bound of its speedup, pooled over the sessions that
-- count (pooled_speedups). Quarantined and nonequivalent kernels are left out, and unheld ones
-- where they are asked to be. policy_id NULL stands for all authors together. The smaller
-- kernel_id wins a tie.
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
ANTI JOIN quarantined ON quarantined.kernel_id = speeds.kernel_id
ANTI JOIN nonequivalent
    ON
        nonequivalent.kernel_id = speeds.kernel_id
        AND nonequivalent.task_id = speeds.task_id
ANTI JOIN unheld
    ON
        unheld.kernel_id = speeds.kernel_id
        AND unheld.task_id = speeds.task_id
QUALIFY row_number() OVER (
    PARTITION BY
        attempted_kernels.policy_id, speeds.task_id, speeds.workload_id, speeds.device,
        speeds.baseline, speeds.clock, speeds."precision"
    ORDER BY {'slowness': -speeds.speedup_low, 'kernel_id': speeds.kernel_id}
) = 1
