-- One row per attempt at a task, newest first: its verdict, speedup, parent and findings. A kernel
-- that computes another function has no speedup here.
WITH wanted AS (
    SELECT *
    FROM generations
    WHERE task_id = $task_id AND ($session IS NULL OR trajectory_id = $session)
    ORDER BY created_at DESC, generation_id DESC
    LIMIT $limit
),
judged AS (
    SELECT
        kernel_id,
        max_by(
            {'status': status, 'reason': reason, 'device': device},
            {'failed': NOT correct, 'at': last_judged_at}
        ) AS deciding
    FROM outcomes
    WHERE task_id = $task_id
    GROUP BY kernel_id
),
measured AS (
    SELECT
        kernel_id,
        max({'at': measured_at, 'speedup': speedup, 'low': speedup_low, 'high': speedup_high})
            AS newest
    FROM kernel_speedups
    WHERE task_id = $task_id AND baseline = 'eager' AND equivalent
    GROUP BY kernel_id
),
found AS (
    SELECT kernel_id, list_sort(list(DISTINCT class)) AS classes
    FROM finding_standings
    WHERE
        coalesce(decision, '') <> 'dismissed'
        AND (decision = 'confirmed' OR coalesce(confidence, 1) >= 0.5)
    GROUP BY kernel_id
)
SELECT
    wanted.generation_id,
    wanted.kernel_id,
    parent.kernel_id AS parent_kernel_id,
    wanted.parent_generation_id,
    policies."name" AS author,
    wanted.trajectory_id AS session,
    wanted.turn,
    judged.deciding.status AS status,
    judged.deciding.reason AS reason,
    judged.deciding.device AS device,
    round(measured.newest.speedup, 3) AS speedup,
    round(measured.newest.low, 3) AS speedup_low,
    round(measured.newest.high, 3) AS speedup_high,
    found.classes AS findings,
    wanted.parse_error,
    left(coalesce(wanted.design, wanted.analysis), 500) AS note,
    wanted.created_at AS written_at
FROM wanted
LEFT JOIN generations AS parent ON parent.generation_id = wanted.parent_generation_id
LEFT JOIN policies ON policies.policy_id = wanted.policy_id
LEFT JOIN judged ON judged.kernel_id = wanted.kernel_id
LEFT JOIN measured ON measured.kernel_id = wanted.kernel_id
LEFT JOIN found ON found.kernel_id = wanted.kernel_id
ORDER BY wanted.created_at DESC, wanted.generation_id DESC
