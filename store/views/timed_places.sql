-- One row per task, workload, device, arm, clock, precision, disturbed and own that was timed (timed_arms).
-- kernel_id is the smallest of the kernels in whose sessions the arm was timed.
--
-- disturbed: whether every session of the arm is disturbed, or too short for its clock
SELECT task_id, workload_id, device_id, arm, clock, "precision", disturbed, own, kernel_id
FROM timed_arms
QUALIFY row_number() OVER (
    PARTITION BY task_id, workload_id, device_id, arm, clock, "precision", disturbed, own
    ORDER BY kernel_id
) = 1
