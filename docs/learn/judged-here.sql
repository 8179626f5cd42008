-- The kernels that this lake has judged on the device of its newest verdict, and whether each ranks.
WITH own AS (
    SELECT devices."name" AS device
    FROM evaluations
    INNER JOIN runs ON runs.run_id = evaluations.run_id
    INNER JOIN devices ON devices.device_id = evaluations.device_id
    WHERE runs.kind = 'evaluation' AND runs.lake_id = (SELECT lake_id FROM lakes ORDER BY created_at LIMIT 1)
    ORDER BY evaluations.created_at DESC
    LIMIT 1
)
SELECT
    task_names.task,
    kernels.path AS kernel,
    verdicts.status,
    max(speedups.speedup) AS speedup,
    max(speedups.speedup_low) AS speedup_low,
    max(speedups.speedup_high) AS speedup_high,
    own.device,
    CASE
        WHEN NOT verdicts.correct THEN coalesce(verdicts.reason, verdicts.status)
        WHEN bool_or(kernel_speedups.kernel_id IS NOT NULL) THEN 'ranks'
        ELSE coalesce(max(unranked_sessions.reason), 'no session')
    END AS ranking
FROM verdicts
INNER JOIN own ON own.device = verdicts.device
INNER JOIN task_names ON task_names.task_id = verdicts.task_id
INNER JOIN kernels ON kernels.kernel_id = verdicts.kernel_id
LEFT JOIN speedups
    ON
        speedups.kernel_id = verdicts.kernel_id AND speedups.device = own.device
        AND speedups.baseline = 'eager' AND speedups.clock IN ('gpu', 'throughput')
LEFT JOIN kernel_speedups
    ON kernel_speedups.kernel_id = verdicts.kernel_id AND kernel_speedups.device = own.device
LEFT JOIN unranked_sessions
    ON
        unranked_sessions.session_id = speedups.session_id
        AND unranked_sessions.clock = speedups.clock
GROUP BY task_names.task, kernels.path, verdicts.status, verdicts.correct, verdicts.reason, own.device
ORDER BY verdicts.status, task_names.task
