-- One row per kernel, task, workload, device and baseline: the newest session that may be ranked.
-- The newest and not the best of several sessions: measuring until luck strikes gains nothing.
-- One struct as the order lets DuckDB take a maximum by group in place of sorting; quarantined
-- follows from kernel_id and stands in the partition so that a filter on it goes below as well.
SELECT *
FROM rankable_sessions
QUALIFY row_number() OVER (
    PARTITION BY kernel_id, task_id, workload_id, device, baseline, quarantined
    ORDER BY {'measured_at': measured_at, 'session_id': session_id} DESC
) = 1
