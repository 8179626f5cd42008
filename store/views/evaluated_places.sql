-- One row per task, workload and device where a kernel was judged (evaluated_kernels).
-- kernel_id is the smallest of these kernels.
SELECT task_id, workload_id, device_id, kernel_id
FROM evaluated_kernels
QUALIFY row_number() OVER (
    PARTITION BY task_id, workload_id, device_id ORDER BY kernel_id
) = 1
