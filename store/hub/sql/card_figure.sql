-- One row per device and task: its best speedup over eager with the interval, fastest last.
SELECT device, task_id, speedup, speedup_low, speedup_high
FROM best_kernels
WHERE baseline = 'eager'
QUALIFY row_number() OVER (PARTITION BY device, task_id ORDER BY speedup_low DESC, workload_id) = 1
ORDER BY device, speedup, task_id
