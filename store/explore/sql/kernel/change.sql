-- Change in time
-- Newest quiet sessions of both kernels at the same device, baseline and clock. ratio is above 1 if
-- this kernel is faster than the other.
SELECT
    task_names."name" AS task, this.speedup / other.speedup AS ratio,
    this.speedup, this.speedup_low, this.speedup_high,
    other.speedup AS speedup_before, other.speedup_low AS speedup_before_low,
    other.speedup_high AS speedup_before_high,
    this.kernel_ms, other.kernel_ms AS kernel_ms_before, this.device, this.baseline, this.clock,
    this.task_id
FROM newest_speedups AS this
INNER JOIN newest_speedups AS other
    ON other.kernel_id = $other AND other.task_id = this.task_id AND other.device = this.device
        AND other.baseline = this.baseline
        AND other.clock = this.clock
        AND other.workload_id = this.workload_id
        AND other."precision" = this."precision"
LEFT JOIN task_names ON task_names.task_id = this.task_id
WHERE this.kernel_id = $kernel
ORDER BY task, this.device, this.clock, this.baseline <> 'eager', this.baseline,
    this.workload_id, this."precision"
