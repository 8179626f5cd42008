-- Their code
-- The fastest kernels of the run, one per task, with their changes to the reference.
-- Empty: No kernel of the run has a quiet timing session against eager yet: evaluators run.
WITH fastest AS (
    SELECT *
    FROM run_bests
    WHERE run_id = $run AND baseline = 'eager'
    QUALIFY row_number() OVER (
        PARTITION BY task_id ORDER BY speedup_low DESC, device, kernel_id
    ) = 1
    ORDER BY speedup_low DESC, task_id
    LIMIT $kernels
)
SELECT
    task_names.suite || ' ' || task_names.suite_revision AS suite, task_names.task,
    task_names.title, fastest.device, speeds.speedup, speeds.speedup_low, speeds.speedup_high,
    speeds.sessions, speeds.n, authors.policy, shapes.shapes,
    array_to_string(fragile.flags, ', ') AS fragile,
    array_to_string(features.techniques, ', ') AS techniques,
    kernels.license, kernels."path", fastest.kernel_id, fastest.task_id,
    left(kernels.code, 400000) AS code,
    left(tasks.code, 400000) AS reference
FROM fastest
INNER JOIN kernels ON kernels.kernel_id = fastest.kernel_id
INNER JOIN tasks ON tasks.task_id = fastest.task_id
INNER JOIN task_names ON task_names.task_id = fastest.task_id
INNER JOIN scored_speedups AS speeds
    ON
        speeds.kernel_id = fastest.kernel_id
        AND speeds.task_id = fastest.task_id
        AND speeds.device = fastest.device
        AND speeds.baseline = fastest.baseline
LEFT JOIN authors
    ON authors.kernel_id = fastest.kernel_id AND authors.task_id = fastest.task_id
LEFT JOIN features ON features.kernel_id = fastest.kernel_id
LEFT JOIN fragile
    ON fragile.kernel_id = fastest.kernel_id AND fragile.task_id = fastest.task_id
LEFT JOIN shapes
    ON
        shapes.kernel_id = fastest.kernel_id
        AND shapes.task_id = fastest.task_id
        AND shapes.device = fastest.device
ORDER BY fastest.speedup_low DESC, fastest.task_id
