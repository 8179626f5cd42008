-- Change in time
-- Newest quiet sessions of both kernels at the same device, baseline and clock. ratio is above 1 if
-- this kernel is faster than the other. ranks_nothing says why the session of one of them is in no
-- ranking, such as that it computes another function than the task.
-- Empty: No device has timed both kernels at one task, baseline and clock.
SELECT
    task_names.task, this.speedup / other.speedup AS ratio,
    nullif(concat_ws(
        '; ', 'this kernel: ' || unranked.reason, 'the other: ' || other_unranked.reason
    ), '') AS ranks_nothing,
    this.speedup, this.speedup_low, this.speedup_high,
    other.speedup AS speedup_before, other.speedup_low AS speedup_before_low,
    other.speedup_high AS speedup_before_high,
    this.kernel_ms, other.kernel_ms AS kernel_ms_before, this.device, this.baseline, this.clock,
    this."precision",
    this.task_id
FROM pooled_speedups AS this
INNER JOIN pooled_speedups AS other
    ON other.kernel_id = $other AND other.task_id = this.task_id AND other.device = this.device
        AND other.baseline = this.baseline
        AND other.clock = this.clock
        AND other.workload_id = this.workload_id
        AND other."precision" = this."precision"
LEFT JOIN (SELECT * FROM unranked_sessions WHERE kernel_id = $kernel) AS unranked
    ON unranked.session_id = this.session_id AND unranked.clock = this.clock
        AND unranked.task_id = this.task_id
LEFT JOIN (SELECT * FROM unranked_sessions WHERE kernel_id = $other) AS other_unranked
    ON other_unranked.session_id = other.session_id AND other_unranked.clock = other.clock
        AND other_unranked.task_id = other.task_id
LEFT JOIN task_names ON task_names.task_id = this.task_id
WHERE this.kernel_id = $kernel
ORDER BY task, this.device, this.clock, this.baseline <> 'eager', this.baseline,
    this.workload_id, this."precision"
