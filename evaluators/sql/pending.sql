-- One row per kernel and task that still lacks a verdict of one evaluator version on one device.
-- Parameters: evaluator, version, device_id, device_kind (cpu or cuda), suite.
WITH attempts AS (
    SELECT DISTINCT generations.kernel_id, generations.task_id
    FROM generations
    INNER JOIN task_labels ON task_labels.task_id = generations.task_id
    WHERE
        generations.kernel_id IS NOT NULL
        AND task_labels.suite = $suite
        -- A kernel that somebody else wrote for a task of the suite is not the suite's.
        AND generations.source = $suite
),
runnable AS (
    -- Device code needs a GPU, and plain C++ takes pointers to host memory.
    SELECT attempts.kernel_id, attempts.task_id
    FROM attempts
    LEFT JOIN features ON features.kernel_id = attempts.kernel_id
    WHERE
        CASE $device_kind
            WHEN 'cpu' THEN
                NOT coalesce(features.has_device_code, false)
                AND coalesce(features."language", 'unknown') NOT IN ('triton', 'cuda')
            ELSE coalesce(features."language", 'unknown') <> 'cpp'
        END
),
settings AS (
    -- The workload made for this kind of device where there is one, else the task as it stands.
    SELECT
        task_id,
        arg_min(
            {'workload_id': workload_id, 'axes': axes},
            CASE "name" WHEN $device_kind THEN 1 WHEN 'default' THEN 2 END
        ) AS chosen
    FROM workloads
    WHERE "name" IN ($device_kind, 'default')
    GROUP BY task_id
),
judged AS (
    SELECT DISTINCT kernel_id, task_id, workload_id
    FROM evaluations
    WHERE
        evaluator = $evaluator
        AND evaluator_version = $version
        AND device_id = $device_id
        AND status <> 'evaluator_error'
)
SELECT
    runnable.kernel_id,
    runnable.task_id,
    settings.chosen.workload_id AS workload_id,
    settings.chosen.axes AS axes,
    task_names."name" AS task_name,
    kernels.path
FROM runnable
INNER JOIN settings ON settings.task_id = runnable.task_id
INNER JOIN task_names ON task_names.task_id = runnable.task_id
INNER JOIN kernels ON kernels.kernel_id = runnable.kernel_id
ANTI JOIN judged
    ON
        judged.kernel_id = runnable.kernel_id
        AND judged.task_id = runnable.task_id
        AND judged.workload_id = settings.chosen.workload_id
ORDER BY task_name, runnable.task_id, kernels.path, runnable.kernel_id
