-- One row per task, workload, device, precision and own where a kernel was judged (evaluated_kernels).
-- kernel_id is the smallest of these kernels.
SELECT task_id, workload_id, device_id, "precision", own, kernel_id
FROM evaluated_kernels
QUALIFY row_number() OVER (
    PARTITION BY task_id, workload_id, device_id, "precision", own ORDER BY kernel_id
) = 1
