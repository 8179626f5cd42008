-- One row per task, workload, device and baseline: the kernel with the highest lower speedup bound.
-- Sessions count by the clock and precision that rank (default_clocks). The view leaves out
-- quarantined kernels, nonequivalent kernels (nonequivalent) and trivial tasks (weak_tasks). The
-- smaller kernel_id wins a tie. sessions are those that pool in the speedup. fragile lists the
-- robustness checks that the kernel fails (fragile); it is empty if there are none. shapes says
-- at how many other shapes the kernel holds, and its worst speedup there (shapes).
--
-- key columns: task, device, baseline, speedup, speedup_low, speedup_high, n, kernel_id
-- fragile: robustness checks that the kernel fails, a list; empty if there are none
-- shapes: at how many other shapes the kernel holds, in words; NULL if none was tried
WITH best AS (
    SELECT leading_speedups.*
    FROM leading_speedups
    INNER JOIN default_clocks
        ON
            default_clocks.task_id = leading_speedups.task_id
            AND default_clocks.workload_id = leading_speedups.workload_id
            AND default_clocks.device = leading_speedups.device
            AND default_clocks.baseline = leading_speedups.baseline
            AND default_clocks.clock = leading_speedups.clock
            AND default_clocks."precision" = leading_speedups."precision"
    ANTI JOIN weak_tasks ON weak_tasks.task_id = leading_speedups.task_id
    WHERE leading_speedups.policy_id IS NULL
),
-- As in the view features, for the best kernels alone.
best_features AS (
    SELECT
        kernel_id,
        max({'version': extractor_version, 'techniques': techniques}).techniques AS techniques
    FROM kernel_features
    SEMI JOIN best ON best.kernel_id = kernel_features.kernel_id
    GROUP BY kernel_id
)
SELECT
    best.task_id,
    task_names.suite,
    task_names.suite_revision,
    task_names."level",
    task_names.problem_id,
    task_names.task,
    task_names.title,
    best.workload_id,
    workloads."name" AS workload,
    best.device_id,
    best.device,
    best.baseline,
    best.clock,
    best."precision",
    best.threads,
    best.kernel_id,
    best.speedup,
    best.speedup_low,
    best.speedup_high,
    best.sessions,
    best.n,
    best.kernel_ms,
    best.baseline_ms,
    authors.policy_id,
    authors.policy,
    best_features.techniques,
    coalesce(fragile.flags, []) AS fragile,
    shapes.shapes,
    best.session_id,
    best.evaluation_id,
    best.measured_at
FROM best
INNER JOIN task_names ON task_names.task_id = best.task_id
LEFT JOIN workloads ON workloads.workload_id = best.workload_id
LEFT JOIN authors ON authors.kernel_id = best.kernel_id AND authors.task_id = best.task_id
LEFT JOIN best_features ON best_features.kernel_id = best.kernel_id
LEFT JOIN fragile ON fragile.kernel_id = best.kernel_id AND fragile.task_id = best.task_id
LEFT JOIN shapes
    ON
        shapes.kernel_id = best.kernel_id
        AND shapes.task_id = best.task_id
        AND shapes.device = best.device
ORDER BY
    task_names.suite, task_names.suite_revision, task_names."level", task_names.problem_id,
    task_names.task, best.device, best.baseline, best.workload_id, best.task_id
