-- One row per kernel, task, device and baseline: its speedup at the workload that scores the task.
-- Quarantined and nonequivalent kernels are left out. Tables over tasks, policies and techniques
-- start from this view.
SELECT kernel_speedups.*
FROM kernel_speedups
INNER JOIN scored_workloads
    ON
        scored_workloads.task_id = kernel_speedups.task_id
        AND scored_workloads.device = kernel_speedups.device
        AND scored_workloads.workload_id = kernel_speedups.workload_id
WHERE kernel_speedups.ranked
