-- One row per task and device: the workload that scores the task there.
-- Tables over tasks need one workload per task; otherwise a kernel could win by its most favorable
-- input size. The view picks the workload with the most kernels timed by this lake, then one that
-- this lake has judged kernels on, then the one with the most kernels timed by all lakes, then with
-- the most kernels judged correct, then the default workload.
WITH places AS (
    SELECT DISTINCT evidence.task_id, evidence.workload_id, devices."name" AS device
    FROM (
        SELECT task_id, workload_id, device_id
        FROM timed_places
        WHERE arm = 'kernel'
        UNION ALL
        SELECT task_id, workload_id, device_id
        FROM evaluated_places
    ) AS evidence
    INNER JOIN devices ON devices.device_id = evidence.device_id
),
-- Kernels are counted only where there is a choice.
contested AS (
    SELECT task_id, device
    FROM places
    GROUP BY task_id, device
    HAVING count(*) > 1
),
counted AS (
    SELECT
        evidence.task_id,
        evidence.workload_id,
        devices."name" AS device,
        count(DISTINCT evidence.kernel_id) FILTER (WHERE evidence.own AND evidence.timed)
            AS own_kernels,
        bool_or(evidence.own) AS has_own,
        count(DISTINCT evidence.kernel_id) FILTER (WHERE evidence.timed) AS timed_kernels,
        count(DISTINCT evidence.kernel_id) FILTER (WHERE evidence.correct) AS correct_kernels
    FROM (
        SELECT
            task_id, workload_id, device_id, kernel_id, own, true AS timed, false AS correct
        FROM timed_arms
        WHERE arm = 'kernel'
        UNION ALL
        SELECT task_id, workload_id, device_id, kernel_id, own, false, correct
        FROM evaluated_kernels
    ) AS evidence
    INNER JOIN devices ON devices.device_id = evidence.device_id
    SEMI JOIN contested
        ON contested.task_id = evidence.task_id AND contested.device = devices."name"
    GROUP BY evidence.task_id, evidence.workload_id, devices."name"
)
SELECT
    places.task_id,
    places.device,
    places.workload_id,
    workloads."name" AS workload
FROM places
INNER JOIN workloads ON workloads.workload_id = places.workload_id
LEFT JOIN counted
    ON
        counted.task_id = places.task_id
        AND counted.workload_id = places.workload_id
        AND counted.device = places.device
QUALIFY row_number() OVER (
    PARTITION BY places.task_id, places.device
    ORDER BY
        counted.own_kernels DESC, counted.has_own DESC, counted.timed_kernels DESC,
        counted.correct_kernels DESC,
        workloads.axes = '{}' AND workloads.dtype IS NULL DESC,
        places.workload_id
) = 1
