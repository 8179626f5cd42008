-- Texts of the kernels and tasks to judge; `wanted` is a registered table of kernel_id, task_id,
-- workload_id, axes, compiles, precision and protocol with the order of judging in `position`.
-- best_speedup is the best that may be ranked on the device of this name so far: what beats it by
-- far is measured twice.
-- trusted: the starter suite's, a generated task's teacher's, or one's own files.
-- earlier: number of this lake's own evaluations of the kernel on devices of this name, on a GPU of
-- those by the precision alone; one that names no precision counts for each.
-- Parameters: device (its name).
WITH own AS (
    SELECT DISTINCT generations.kernel_id
    FROM generations
    INNER JOIN runs ON runs.run_id = generations.run_id
    SEMI JOIN wanted ON wanted.kernel_id = generations.kernel_id
    WHERE runs.kind = 'import' AND runs."name" IN ('starter', 'generated', 'kernels')
),
best AS (
    SELECT task_id, workload_id, max(speedup) AS speedup
    FROM kernel_speedups
    WHERE device = $device AND baseline = 'eager' AND ranked
    GROUP BY task_id, workload_id
),
before AS (
    SELECT
        evaluations.kernel_id, evaluations.task_id, evaluations.workload_id,
        list(CASE WHEN devices.kind = 'cuda' THEN split_part(evaluations."precision", ' ', 1) END)
            AS precisions
    FROM evaluations
    INNER JOIN devices ON devices.device_id = evaluations.device_id
    SEMI JOIN wanted ON wanted.kernel_id = evaluations.kernel_id
    WHERE evaluations.origin IS NULL AND devices."name" = $device
    GROUP BY evaluations.kernel_id, evaluations.task_id, evaluations.workload_id
)
SELECT
    wanted.kernel_id,
    wanted.task_id,
    wanted.workload_id,
    wanted.axes,
    wanted.compiles,
    wanted."precision",
    wanted.protocol,
    kernels.code,
    kernels.path,
    kernels.entry_point,
    kernels.other_files,
    tasks.code AS task_code,
    best.speedup AS best_speedup,
    len(list_filter(
        coalesce(before.precisions, []), lambda one: coalesce(one = wanted."precision", true)
    )) AS earlier,
    weak_workloads.task_id IS NOT NULL AS weak,
    own.kernel_id IS NOT NULL AS trusted
FROM wanted
INNER JOIN kernels ON kernels.kernel_id = wanted.kernel_id
INNER JOIN tasks ON tasks.task_id = wanted.task_id
LEFT JOIN own ON own.kernel_id = wanted.kernel_id
LEFT JOIN best ON best.task_id = wanted.task_id AND best.workload_id = wanted.workload_id
LEFT JOIN before
    ON
        before.kernel_id = wanted.kernel_id
        AND before.task_id = wanted.task_id
        AND before.workload_id = wanted.workload_id
LEFT JOIN weak_workloads
    ON
        weak_workloads.task_id = wanted.task_id
        AND weak_workloads.workload_id = wanted.workload_id
ORDER BY wanted.position
