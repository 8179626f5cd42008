-- One row per kernel, task and precision that still lacks a verdict of one evaluator version on these
-- devices. A verdict on any of the devices is enough: they are alike. A task's kernels are judged by
-- one precision after the other, so that its baselines are prepared once for each; texts that a release
-- contains beside the kernels, such as its own baselines, come after them. Parameters:
-- evaluator, version, device_ids, device (their name), device_kind (cpu or cuda), suite (NULL for
-- every suite), kernel (NULL for every kernel), contended (whether a
-- verdict whose session shared its host with other work counts as none), protocol (training:
-- verdicts by it count as well), precisions (by which verdicts count on a GPU; NULL among them for
-- any), shapes (names of other shapes; a correct kernel that was not tried at all of them is
-- judged again). earlier is that of cases.sql.
WITH asked AS (
    SELECT
        unnest(CAST($precisions AS VARCHAR[])) AS "precision",
        generate_subscripts(CAST($precisions AS VARCHAR[]), 1) AS place
),
attempts AS (
    SELECT kernel_id, task_id, bool_and(beside) AS beside
    FROM (
        SELECT kernel_id, task_id, false AS beside FROM generations
        UNION ALL
        SELECT kernel_id, task_id, true AS beside FROM released_code
        UNION ALL
        SELECT baseline_kernel_id AS kernel_id, task_id, true AS beside FROM claims
    ) AS texts
    SEMI JOIN task_labels
        ON
            task_labels.task_id = texts.task_id
            AND ($suite IS NULL OR task_labels.suite = $suite)
    WHERE kernel_id IS NOT NULL AND ($kernel IS NULL OR kernel_id = $kernel)
    GROUP BY kernel_id, task_id
),
runnable AS (
    -- Device code needs a GPU, and plain C++ takes pointers to host memory.
    SELECT
        attempts.kernel_id,
        attempts.task_id,
        attempts.beside,
        coalesce(features."language" IN ('cuda', 'cpp', 'mixed'), false) AS compiles
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
-- Where shapes are asked for by name, those that a kernel was tried at.
tried AS (
    SELECT
        evaluations.kernel_id, evaluations.task_id, list(DISTINCT workloads."name") AS shapes
    FROM evaluations
    INNER JOIN workloads ON workloads.workload_id = evaluations.workload_id
    WHERE
        len(CAST($shapes AS VARCHAR[])) > 0
        AND evaluations.protocol = 'shape'
        AND evaluations.evaluator = $evaluator
        AND evaluations.evaluator_version = $version
        AND evaluations.device_id IN (SELECT unnest($device_ids))
        AND evaluations.origin IS NULL
    GROUP BY evaluations.kernel_id, evaluations.task_id
),
judged AS (
    SELECT DISTINCT
        evaluations.kernel_id, evaluations.task_id, evaluations.workload_id,
        evaluations."precision"
    FROM (
        FROM counted_evaluations
        UNION ALL BY NAME
        SELECT * EXCLUDE (device)
        FROM training_evaluations
        WHERE $protocol = 'training'
    ) AS evaluations
    LEFT JOIN tried
        ON tried.kernel_id = evaluations.kernel_id AND tried.task_id = evaluations.task_id
    WHERE
        evaluator = $evaluator
        AND evaluator_version = $version
        AND device_id IN (SELECT unnest($device_ids))
        AND status <> 'evaluator_error'
        AND origin IS NULL
        AND NOT ($contended AND list_contains(flags, 'contended'))
        AND (
            status <> 'correct'
            OR list_has_all(coalesce(tried.shapes, []), CAST($shapes AS VARCHAR[]))
        )
),
before AS (
    SELECT
        evaluations.kernel_id, evaluations.task_id, evaluations.workload_id,
        list(CASE WHEN devices.kind = 'cuda' THEN split_part(evaluations."precision", ' ', 1) END)
            AS precisions
    FROM evaluations
    INNER JOIN devices ON devices.device_id = evaluations.device_id
    WHERE evaluations.origin IS NULL AND devices."name" = $device
    GROUP BY evaluations.kernel_id, evaluations.task_id, evaluations.workload_id
)
SELECT
    runnable.kernel_id,
    runnable.task_id,
    settings.chosen.workload_id AS workload_id,
    settings.chosen.axes AS axes,
    runnable.compiles,
    asked."precision",
    CAST($protocol AS VARCHAR) AS protocol,
    len(list_filter(
        coalesce(before.precisions, []), lambda one: coalesce(one = asked."precision", true)
    )) AS earlier,
    task_names.suite,
    task_names."level",
    task_names.task AS task_name,
    kernels.path
FROM runnable
CROSS JOIN asked
INNER JOIN judged_workloads AS settings
    ON settings.task_id = runnable.task_id AND settings.kind = $device_kind
INNER JOIN task_names ON task_names.task_id = runnable.task_id
-- Of other entry points, no evaluator knows how to call them; solutions of flashinfer-bench may get
-- their outputs as further arguments.
INNER JOIN kernels
    ON
        kernels.kernel_id = runnable.kernel_id
        AND (
            kernels.entry_point IN ('ModelNew', 'Model')
            OR (
                kernels.path LIKE '%.py'
                AND kernels.entry_point IN (
                    'custom_kernel', 'run', 'solution', 'kernel_fn', 'kernel_function'
                )
                AND task_names.suite NOT IN ('flashinfer-trace', 'sol-execbench')
            )
        )
ANTI JOIN judged
    ON
        judged.kernel_id = runnable.kernel_id
        AND judged.task_id = runnable.task_id
        AND judged.workload_id = settings.chosen.workload_id
        AND ($device_kind = 'cpu' OR asked."precision" IS NULL OR judged."precision" = asked."precision")
LEFT JOIN before
    ON
        before.kernel_id = runnable.kernel_id
        AND before.task_id = runnable.task_id
        AND before.workload_id = settings.chosen.workload_id
ORDER BY
    task_names.suite, task_names."level", task_names.problem_id, task_name, runnable.task_id,
    asked.place, runnable.beside, kernels.path, runnable.kernel_id
