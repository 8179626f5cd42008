-- One row per task, workload, device and baseline: the kernel with the highest lower speedup bound.
-- Only rankable sessions count (rankable_sessions). The view leaves out quarantined kernels,
-- nonequivalent kernels (nonequivalent) and weak tasks (weak_tasks). The smaller kernel_id wins a
-- tie.
WITH best AS (
    SELECT * EXCLUDE (kernel_ms, baseline_ms)
    FROM kernel_speedups
    ANTI JOIN weak_tasks ON weak_tasks.task_id = kernel_speedups.task_id
    WHERE kernel_speedups.ranked
    QUALIFY row_number() OVER (
        PARTITION BY task_id, workload_id, device, baseline
        ORDER BY {'slowness': -speedup_low, 'kernel_id': kernel_id}
    ) = 1
)
SELECT
    best.task_id,
    task_names.suite,
    task_names.suite_revision,
    task_names."level",
    task_names.problem_id,
    task_names."name" AS task,
    task_names.title,
    best.workload_id,
    workloads."name" AS workload,
    best.device_id,
    best.device,
    best.baseline,
    best.clock,
    best."precision",
    best.kernel_id,
    best.speedup,
    best.speedup_low,
    best.speedup_high,
    best.n,
    list_median(kernel.samples_ms) AS kernel_ms,
    list_median(baseline.samples_ms) AS baseline_ms,
    authors.policy_id,
    authors.policy,
    features.techniques,
    best.session_id,
    best.evaluation_id,
    best.measured_at
FROM best
INNER JOIN task_names ON task_names.task_id = best.task_id
-- The medians of speedups, computed for the winners alone.
INNER JOIN clocked_timings AS kernel
    ON
        kernel.session_id = best.session_id
        AND kernel.clock = best.clock
        AND kernel.arm = 'kernel'
INNER JOIN clocked_timings AS baseline
    ON
        baseline.session_id = best.session_id
        AND baseline.clock = best.clock
        AND baseline.arm = best.baseline
LEFT JOIN workloads ON workloads.workload_id = best.workload_id
LEFT JOIN authors ON authors.kernel_id = best.kernel_id AND authors.task_id = best.task_id
LEFT JOIN features ON features.kernel_id = best.kernel_id
ORDER BY
    task_names.suite, task_names.suite_revision, task_names."level", task_names.problem_id,
    task_names."name", best.device, best.baseline, best.workload_id, best.task_id
