-- The ten kernels that stand furthest above eager on the H200, and what the best baseline of the
-- session leaves of it. Quiet sessions alone; of several of a kernel the newest counts.
WITH sessions AS (
    SELECT
        kernel_id, task_id, session_id, max(measured_at) AS measured_at,
        any_value(speedup) FILTER (WHERE baseline = 'eager') AS eager,
        min(speedup) AS best,
        arg_min(baseline, speedup) AS hardest
    FROM speedups
    WHERE device = 'H200' AND clock = 'gpu' AND NOT noisy
    GROUP BY kernel_id, task_id, session_id
    QUALIFY row_number() OVER (
        PARTITION BY kernel_id, task_id ORDER BY max(measured_at) DESC, session_id
    ) = 1
)
SELECT
    task_names."name" AS task,
    round(sessions.eager, 2) AS eager,
    round(sessions.best, 2) AS best,
    sessions.hardest,
    coalesce(features.uses_streams, FALSE) AS uses_streams
FROM sessions
INNER JOIN task_names ON task_names.task_id = sessions.task_id
LEFT JOIN features ON features.kernel_id = sessions.kernel_id
WHERE task_names.suite = 'kernelbench'
ORDER BY sessions.eager DESC
LIMIT 10
