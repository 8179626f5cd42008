-- One row per author, task, workload, device, baseline, clock and precision: the best kernel.
-- That is the kernel with the highest lower bound of its speedup, pooled over the sessions that
-- count (pooled_speedups). Quarantined and nonequivalent kernels are left out, and unheld ones
-- where they are asked to be. policy_id NULL stands for all authors together. The smaller
-- kernel_id wins a tie.
SELECT policy_speedups.*
FROM policy_speedups
ANTI JOIN quarantined ON quarantined.kernel_id = policy_speedups.kernel_id
ANTI JOIN nonequivalent
    ON
        nonequivalent.kernel_id = policy_speedups.kernel_id
        AND nonequivalent.task_id = policy_speedups.task_id
ANTI JOIN unheld
    ON
        unheld.kernel_id = policy_speedups.kernel_id
        AND unheld.task_id = policy_speedups.task_id
QUALIFY row_number() OVER (
    PARTITION BY policy_id, task_id, workload_id, device, baseline, clock, "precision"
    ORDER BY {'slowness': -speedup_low, 'kernel_id': policy_speedups.kernel_id}
) = 1
