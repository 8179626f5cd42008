-- One row per requested kernel and task: the workload that it is judged on, and its current
-- verdict.
-- evaluation_id is NULL where this version of the evaluator has no verdict on these devices. Any
-- failure on any of them wins over a pass, as in the view verdicts. Kernels of every language are
-- included, because an author writes for this device. speedup is over eager, pooled over the sessions
-- that may be ranked. findings are the classes of findings that are not dismissed and have a
-- confidence of 0.5 or more. `requested` (kernel_id, task_id, position) is registered.
-- Parameters: evaluator, version, device_ids, device_kind, precision (by which verdicts count on a GPU;
-- NULL for any), protocol (training: verdicts and speedups by it count where there is no full one).
WITH judged AS (
    SELECT
        evaluations.kernel_id, evaluations.task_id, evaluations.workload_id,
        max({
            'failed': evaluations.status <> 'correct', 'created_at': evaluations.created_at,
            'evaluation_id': evaluations.evaluation_id, 'device_id': evaluations.device_id,
            'status': evaluations.status, 'reason': evaluations.reason,
            'message': evaluations.message, 'flags': evaluations.flags,
            'equivalent': evaluations.protocol IS DISTINCT FROM 'training'
            OR coalesce(evaluations.equivalent, true)
        }) AS deciding
    FROM (
        FROM counted_evaluations
        UNION ALL BY NAME
        SELECT * EXCLUDE (device)
        FROM training_evaluations
        WHERE $protocol = 'training'
    ) AS evaluations
    SEMI JOIN requested
        ON requested.kernel_id = evaluations.kernel_id AND requested.task_id = evaluations.task_id
    WHERE
        evaluations.evaluator = $evaluator
        AND evaluations.evaluator_version = $version
        AND evaluations.device_id IN (SELECT unnest($device_ids))
        AND evaluations.status <> 'evaluator_error'
        AND evaluations.origin IS NULL
        AND (
            $device_kind = 'cpu'
            OR CAST($precision AS VARCHAR) IS NULL
            OR evaluations."precision" = $precision
        )
    GROUP BY evaluations.kernel_id, evaluations.task_id, evaluations.workload_id
),
measured AS (
    SELECT
        kernel_id, task_id, workload_id,
        max({'at': measured_at, 'speedup': speedup, 'low': speedup_low}) AS newest
    FROM (
        SELECT kernel_id, task_id, workload_id, device, baseline, measured_at, speedup, speedup_low
        FROM kernel_speedups
        UNION ALL
        SELECT kernel_id, task_id, workload_id, device, baseline, measured_at, speedup, speedup_low
        FROM training_speedups
        WHERE $protocol = 'training'
    )
    WHERE
        baseline = 'eager'
        AND device IN (SELECT "name" FROM devices WHERE list_contains($device_ids, device_id))
    GROUP BY kernel_id, task_id, workload_id
),
found AS (
    SELECT
        finding_standings.kernel_id,
        list_sort(list(DISTINCT finding_standings.class)) AS classes,
        coalesce(bool_or(decision = 'confirmed'), false) AS quarantined
    FROM finding_standings
    SEMI JOIN requested ON requested.kernel_id = finding_standings.kernel_id
    WHERE
        decision = 'confirmed'
        OR (decision IS NULL AND coalesce(finding_standings.confidence, 1) >= 0.5)
    GROUP BY finding_standings.kernel_id
)
SELECT
    requested.kernel_id,
    requested.task_id,
    settings.chosen.workload_id AS workload_id,
    settings.chosen.axes AS axes,
    coalesce(features."language" IN ('cuda', 'cpp', 'mixed'), false) AS compiles,
    CAST($precision AS VARCHAR) AS "precision",
    CAST($protocol AS VARCHAR) AS protocol,
    judged.deciding.evaluation_id AS evaluation_id,
    judged.deciding.device_id AS device_id,
    judged.deciding.status AS status,
    judged.deciding.reason AS reason,
    judged.deciding.message AS message,
    coalesce(judged.deciding.flags, []) AS flags,
    measured.newest.speedup AS speedup,
    measured.newest.low AS speedup_low,
    coalesce(found.classes, []) AS findings,
    coalesce(found.quarantined, false) AS quarantined,
    nonequivalent.kernel_id IS NULL AND coalesce(judged.deciding.equivalent, true) AS equivalent
FROM requested
INNER JOIN kernels ON kernels.kernel_id = requested.kernel_id
INNER JOIN judged_workloads AS settings
    ON settings.task_id = requested.task_id AND settings.kind = $device_kind
LEFT JOIN features ON features.kernel_id = requested.kernel_id
LEFT JOIN judged
    ON
        judged.kernel_id = requested.kernel_id
        AND judged.task_id = requested.task_id
        AND judged.workload_id = settings.chosen.workload_id
LEFT JOIN measured
    ON
        measured.kernel_id = requested.kernel_id
        AND measured.task_id = requested.task_id
        AND measured.workload_id = settings.chosen.workload_id
LEFT JOIN found ON found.kernel_id = requested.kernel_id
LEFT JOIN nonequivalent
    ON nonequivalent.kernel_id = requested.kernel_id AND nonequivalent.task_id = requested.task_id
ORDER BY requested.position
