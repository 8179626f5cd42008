-- One row per kernel of the grid: its task, its setting, and its speedup over eager.
-- The newest verdict of a kernel counts, whichever protocol gave it; where a win was measured twice,
-- the lower speedup. speedup is NULL if the kernel is not correct or has no figure. `outcome` is the
-- logarithm of the speedup, or that of the slowest correct setting of the task where there is none.
WITH verdicts AS (
    SELECT
        evaluations.kernel_id, evaluations.task_id, evaluations.workload_id,
        evaluations.evaluation_id, evaluations.status, evaluations.evaluator_version,
        evaluations.protocol, devices."name" AS device,
        count(*) OVER kernel_verdicts AS judged
    FROM standing_evaluations AS evaluations
    INNER JOIN devices ON devices.device_id = evaluations.device_id
    WHERE evaluations.evaluator = 'judge' AND evaluations.status <> 'evaluator_error'
    WINDOW kernel_verdicts AS (PARTITION BY evaluations.kernel_id, evaluations.task_id)
    QUALIFY row_number() OVER (
        PARTITION BY evaluations.kernel_id, evaluations.task_id
        ORDER BY evaluations.created_at DESC, evaluations.evaluation_id DESC
    ) = 1
),
speeds AS (
    SELECT
        evaluation_id, min(speedup) AS speedup, bool_or(disturbed) AS disturbed
    FROM session_speedups
    WHERE baseline = 'eager'
    GROUP BY evaluation_id
),
grid AS (
    SELECT
        task_names.split,
        replace(task_names.family, ':held-out', '') AS family,
        json_extract_string(workloads.axes, '$.ROWS') || ' x '
        || json_extract_string(workloads.axes, '$.COLS') AS shape,
        regexp_extract(task_names.title, ': (.*), sum$', 1) AS operation,
        verdicts.task_id, verdicts.kernel_id,
        array_to_string(
            list_transform(
                regexp_extract_all(kernels.code, '(?m)^[A-Z_]+ = \d+'),
                lambda line: replace(line, ' = ', '=')
            ),
            ' '
        ) AS setting,
        verdicts.status,
        CASE WHEN verdicts.status = 'correct' THEN speeds.speedup END AS speedup,
        coalesce(speeds.disturbed, false) AS disturbed,
        verdicts.judged, verdicts.evaluator_version, verdicts.protocol, verdicts.device
    FROM verdicts
    LEFT JOIN speeds ON speeds.evaluation_id = verdicts.evaluation_id
    INNER JOIN kernels ON kernels.kernel_id = verdicts.kernel_id
    INNER JOIN task_names ON task_names.task_id = verdicts.task_id
    INNER JOIN workloads ON workloads.workload_id = verdicts.workload_id
)
SELECT
    *,
    ln(coalesce(speedup, min(speedup) OVER (PARTITION BY task_id))) AS outcome,
    round(speedup, 2) AS shown_score
FROM grid
ORDER BY family, shape, operation, setting
