-- One row per author, task, workload and device where a kernel of the author is correct.
-- Quarantined and nonequivalent kernels do not count, and neither do unheld ones where they are
-- asked not to. kernel_id is the smallest of the kernels. policy_id NULL stands for all
-- authors together.
SELECT policy_id, task_id, workload_id, device, policy_outcomes.kernel_id
FROM policy_outcomes
ANTI JOIN quarantined ON quarantined.kernel_id = policy_outcomes.kernel_id
ANTI JOIN nonequivalent
    ON
        nonequivalent.kernel_id = policy_outcomes.kernel_id
        AND nonequivalent.task_id = policy_outcomes.task_id
ANTI JOIN unheld
    ON
        unheld.kernel_id = policy_outcomes.kernel_id
        AND unheld.task_id = policy_outcomes.task_id
WHERE correct
QUALIFY row_number() OVER (
    PARTITION BY policy_id, task_id, workload_id, device ORDER BY policy_outcomes.kernel_id
) = 1
