-- One row per task, workload, device and precision where a kernel was judged (evaluated_kernels).
-- kernel_id is the smallest of these kernels.
SELECT task_id, workload_id, device_id, "precision", kernel_id
FROM evaluated_kernels
QUALIFY row_number() OVER (
    PARTITION BY task_id, workload_id, device_id, "precision" ORDER BY kernel_id
) = 1
