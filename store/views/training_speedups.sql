-- One row per kernel, task, workload, device and baseline: its speedup by the protocol training.
-- Only correct kernels (training_outcomes) with a session that is not disturbed have one: the session of
-- the deciding evaluation (the lower one of two that confirm a win), by the only clock that the protocol reads. A kernel that is unverified has
-- none, because it could compute less in timed calls.
WITH counted AS (
    SELECT
        sessions.* EXCLUDE (workload_id, device_id),
        outcomes.workload_id,
        outcomes.device,
        any_value(sessions.speedup) FILTER (WHERE sessions.baseline = 'eager') OVER (
            PARTITION BY sessions.session_id, sessions.kernel_id, sessions.task_id
        ) AS over_eager,
        max(sessions.measured_at) OVER (
            PARTITION BY sessions.evaluation_id, sessions.kernel_id, sessions.task_id
        ) AS last_measured_at
    FROM session_speedups AS sessions
    INNER JOIN training_outcomes AS outcomes
        ON
            outcomes.evaluation_id = sessions.evaluation_id
            AND outcomes.kernel_id = sessions.kernel_id
            AND outcomes.task_id = sessions.task_id
            AND outcomes.workload_id = sessions.workload_id
    INNER JOIN devices
        ON devices.device_id = sessions.device_id AND devices."name" = outcomes.device
    WHERE
        outcomes.correct AND NOT outcomes.unverified
        AND NOT sessions.disturbed AND NOT sessions.unresolved
)
SELECT * EXCLUDE (over_eager, last_measured_at)
FROM counted
QUALIFY row_number() OVER (
    PARTITION BY kernel_id, task_id, workload_id, device, baseline
    ORDER BY
        CASE WHEN confirmed THEN last_measured_at ELSE measured_at END DESC,
        CASE WHEN confirmed THEN over_eager END, session_id DESC
) = 1
