-- One row per author and task: the author attempted the task with a kernel (attempted_kernels).
-- kernel_id is the smallest of these kernels. policy_id NULL stands for all authors together.
SELECT policy_id, task_id, kernel_id
FROM attempted_kernels
QUALIFY row_number() OVER (PARTITION BY policy_id, task_id ORDER BY kernel_id) = 1
