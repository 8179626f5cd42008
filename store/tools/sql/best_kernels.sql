-- The best kernels of a task on each device, each with its code and the code that it began from:
-- that of its newest parent, or the task's reference. fragile lists the robustness checks that it
-- fails. shapes: at how many other shapes it is correct, and its worst speedup there.
WITH ranked AS (
    SELECT *
    FROM kernel_speedups
    WHERE
        task_id = $task_id AND ranked AND baseline = $baseline
        AND ($device IS NULL OR device = $device)
    QUALIFY row_number() OVER (
        PARTITION BY device, workload_id ORDER BY speedup_low DESC, kernel_id
    ) <= $limit
),
parents AS (
    SELECT child_kernel_id, max({'at': created_at, 'kernel_id': parent_kernel_id}) AS newest
    FROM lineage
    WHERE task_id = $task_id AND relation = 'parent' AND child_kernel_id <> parent_kernel_id
    GROUP BY child_kernel_id
)
SELECT
    ranked.kernel_id,
    ranked.device,
    workloads."name" AS workload,
    ranked.clock,
    round(ranked.speedup, 3) AS speedup,
    round(ranked.speedup_low, 3) AS speedup_low,
    round(ranked.speedup_high, 3) AS speedup_high,
    ranked.n AS samples,
    authors.policy AS author,
    features.techniques,
    coalesce(fragile.flags, []) AS fragile,
    shapes.shapes,
    coalesce(parents.newest.kernel_id, 'the reference') AS diff_from,
    kernels.code,
    coalesce(before.code, tasks.code) AS before
FROM ranked
INNER JOIN kernels ON kernels.kernel_id = ranked.kernel_id
INNER JOIN tasks ON tasks.task_id = ranked.task_id
LEFT JOIN workloads ON workloads.workload_id = ranked.workload_id
LEFT JOIN authors ON authors.kernel_id = ranked.kernel_id AND authors.task_id = ranked.task_id
LEFT JOIN features ON features.kernel_id = ranked.kernel_id
LEFT JOIN fragile ON fragile.kernel_id = ranked.kernel_id AND fragile.task_id = ranked.task_id
LEFT JOIN shapes
    ON
        shapes.kernel_id = ranked.kernel_id
        AND shapes.task_id = ranked.task_id
        AND shapes.device = ranked.device
LEFT JOIN parents ON parents.child_kernel_id = ranked.kernel_id
LEFT JOIN kernels AS before ON before.kernel_id = parents.newest.kernel_id
ORDER BY ranked.device, workload, ranked.speedup_low DESC, ranked.kernel_id
