-- One row per author, task and kernel: the author attempted the task with this kernel.
-- policy_id is NULL in a further row for every kernel that anybody attempted the task with, or that
-- was judged on it without a known author.
SELECT policy_id, task_id, kernel_id FROM generations WHERE kernel_id IS NOT NULL
UNION
SELECT NULL AS policy_id, task_id, kernel_id FROM generations WHERE kernel_id IS NOT NULL
UNION
SELECT NULL AS policy_id, task_id, kernel_id FROM evaluations
