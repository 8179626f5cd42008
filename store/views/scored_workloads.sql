-- One row per task and device: the workload that scores the task there.
-- Tables by task need one workload each, or a kernel could win by its kindest input size. It is the
-- one with the most kernels timed, then the most judged correct, then the default one.
WITH evidence AS (
    SELECT task_id, workload_id, device_id, kernel_id, true AS timed, false AS correct
    FROM timings
    WHERE arm = 'kernel'
    UNION ALL
    SELECT task_id, workload_id, device_id, kernel_id, false, status = 'correct'
    FROM evaluations
    WHERE status <> 'evaluator_error'
),
counted AS (
    SELECT
        evidence.task_id,
        evidence.workload_id,
        devices."name" AS device,
        count(DISTINCT evidence.kernel_id) FILTER (WHERE evidence.timed) AS timed_kernels,
        count(DISTINCT evidence.kernel_id) FILTER (WHERE evidence.correct) AS correct_kernels
    FROM evidence
    INNER JOIN devices ON devices.device_id = evidence.device_id
    GROUP BY evidence.task_id, evidence.workload_id, devices."name"
)
SELECT
    counted.task_id,
    counted.device,
    counted.workload_id,
    workloads."name" AS workload
FROM counted
INNER JOIN workloads ON workloads.workload_id = counted.workload_id
QUALIFY row_number() OVER (
    PARTITION BY counted.task_id, counted.device
    ORDER BY
        counted.timed_kernels DESC, counted.correct_kernels DESC,
        workloads.axes = '{}' AND workloads.dtype IS NULL DESC,
        counted.workload_id
) = 1
