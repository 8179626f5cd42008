-- One row per kernel, task, workload, device and baseline: the newest session that may be ranked.
-- The newest and not the best of several sessions: measuring until luck strikes gains nothing.
SELECT *
FROM rankable_sessions
QUALIFY row_number() OVER (
    PARTITION BY kernel_id, task_id, workload_id, device, baseline
    ORDER BY measured_at DESC, session_id DESC
) = 1
