-- One row per author, task, workload and device where a kernel of the author has a verdict.
-- kernel_id is the smallest of these kernels. policy_id NULL stands for all authors together.
SELECT policy_id, task_id, workload_id, device, kernel_id
FROM policy_outcomes
QUALIFY row_number() OVER (
    PARTITION BY policy_id, task_id, workload_id, device ORDER BY kernel_id
) = 1
