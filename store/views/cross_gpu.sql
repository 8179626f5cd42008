-- One row per kernel, task, baseline and pair of devices: the speedup on each, and their ratio.
-- Input sizes may differ between devices on purpose, so a pair may join two workloads of one task.
-- If several pairs exist, the view shows the pair with equal workloads, otherwise the pair with the
-- workloads that score the task. ratio = speedup_b / speedup_a; its interval comes from the ends of
-- the two intervals. Nonequivalent kernels (nonequivalent) and trivial tasks (weak_tasks) are left
-- out.
--
-- key columns: task, kernel_id, baseline, device_a, speedup_a, device_b, speedup_b, ratio,
--   ratio_low, ratio_high
-- device_a: model name of the first device, in alphabetic order
-- device_b: model name of the second device
-- workload_a: name of the input sizes on device_a
-- workload_b: name of the input sizes on device_b
-- same_workload: whether the two input sizes are the same
-- speedup_a: speedup on device_a (a ratio)
-- speedup_a_low: lower end of its 95 % interval
-- speedup_a_high: upper end of its 95 % interval
-- speedup_b: speedup on device_b (a ratio)
-- speedup_b_low: lower end of its 95 % interval
-- speedup_b_high: upper end of its 95 % interval
-- ratio: speedup_b / speedup_a
-- ratio_low: lower end of the interval of ratio
-- ratio_high: upper end of the interval of ratio
WITH measured AS (
    SELECT kernel_speedups.*, scored_workloads.task_id IS NOT NULL AS scored
    FROM kernel_speedups
    LEFT JOIN scored_workloads
        ON
            scored_workloads.task_id = kernel_speedups.task_id
            AND scored_workloads.device = kernel_speedups.device
            AND scored_workloads.workload_id = kernel_speedups.workload_id
    ANTI JOIN weak_tasks ON weak_tasks.task_id = kernel_speedups.task_id
    WHERE kernel_speedups.equivalent
),
pairs AS (
    SELECT
        a.kernel_id, a.task_id, a.baseline, a.quarantined,
        a.device AS device_a, b.device AS device_b,
        a.workload_id AS workload_id_a, b.workload_id AS workload_id_b,
        a.workload_id = b.workload_id AS same_workload,
        a.speedup AS speedup_a, a.speedup_low AS speedup_a_low, a.speedup_high AS speedup_a_high,
        b.speedup AS speedup_b, b.speedup_low AS speedup_b_low, b.speedup_high AS speedup_b_high
    FROM measured AS a
    INNER JOIN measured AS b
        ON
            b.kernel_id = a.kernel_id
            AND b.task_id = a.task_id
            AND b.baseline = a.baseline
            AND b.device > a.device
    QUALIFY row_number() OVER (
        PARTITION BY a.kernel_id, a.task_id, a.baseline, a.device, b.device
        ORDER BY
            a.workload_id = b.workload_id DESC, a.scored DESC, b.scored DESC,
            a.workload_id, b.workload_id
    ) = 1
)
SELECT
    pairs.task_id,
    task_names.task,
    pairs.kernel_id,
    pairs.baseline,
    pairs.device_a,
    pairs.device_b,
    workloads_a."name" AS workload_a,
    workloads_b."name" AS workload_b,
    pairs.same_workload,
    pairs.speedup_a,
    pairs.speedup_a_low,
    pairs.speedup_a_high,
    pairs.speedup_b,
    pairs.speedup_b_low,
    pairs.speedup_b_high,
    pairs.speedup_b / pairs.speedup_a AS ratio,
    pairs.speedup_b_low / pairs.speedup_a_high AS ratio_low,
    pairs.speedup_b_high / pairs.speedup_a_low AS ratio_high,
    pairs.quarantined
FROM pairs
INNER JOIN task_names ON task_names.task_id = pairs.task_id
INNER JOIN workloads AS workloads_a ON workloads_a.workload_id = pairs.workload_id_a
INNER JOIN workloads AS workloads_b ON workloads_b.workload_id = pairs.workload_id_b
ORDER BY
    task_names.suite, task_names.suite_revision, task_names."level", task_names.problem_id,
    task_names.task, pairs.baseline, pairs.device_a, pairs.device_b,
    pairs.speedup_a DESC, pairs.kernel_id
