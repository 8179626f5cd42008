-- One row per session that set a new best speedup for its task, workload, device and baseline.
-- This is the running maximum, over time, of the speedup's lower bound, as in all rankings.
-- Only the clock and the precision that rank the task count (default_clocks). Quarantined and
-- nonequivalent kernels are left out, so a record that was taken back disappears from the curve.
-- A window over all sessions would sort them. The best of each hour leaves few sessions to sort:
-- those above everything of the hours before.
--
-- key columns: task, device, baseline, measured_at, speedup, speedup_low, speedup_high, kernel_id
WITH hours AS (
    SELECT
        task_id, workload_id, device, baseline, date_trunc('hour', measured_at) AS "hour",
        max(speedup_low) AS best
    FROM rankable_sessions
    WHERE ranked
    GROUP BY task_id, workload_id, device, baseline, "hour"
),
bounds AS (
    SELECT
        *,
        max(best) OVER (
            PARTITION BY task_id, workload_id, device, baseline
            ORDER BY "hour"
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS earlier_hours
    FROM hours
),
ordered AS (
    SELECT
        sessions.task_id, sessions.workload_id, sessions.device, sessions.baseline,
        sessions.kernel_id, sessions.session_id, sessions.measured_at, sessions.speedup,
        sessions.speedup_low, sessions.speedup_high, sessions.clock, sessions."precision",
        max(sessions.speedup_low) OVER (
            PARTITION BY
                sessions.task_id, sessions.workload_id, sessions.device, sessions.baseline
            ORDER BY sessions.measured_at, sessions.session_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS previous_low
    FROM rankable_sessions AS sessions
    INNER JOIN bounds
        ON
            bounds.task_id = sessions.task_id
            AND bounds.workload_id = sessions.workload_id
            AND bounds.device = sessions.device
            AND bounds.baseline = sessions.baseline
            AND bounds."hour" = date_trunc('hour', sessions.measured_at)
    WHERE
        sessions.ranked
        AND (bounds.earlier_hours IS NULL OR sessions.speedup_low > bounds.earlier_hours)
)
SELECT
    ordered.task_id,
    task_names.task,
    ordered.workload_id,
    workloads."name" AS workload,
    ordered.device,
    ordered.baseline,
    ordered.clock,
    ordered."precision",
    ordered.measured_at,
    ordered.speedup,
    ordered.speedup_low,
    ordered.speedup_high,
    ordered.previous_low,
    ordered.kernel_id,
    authors.policy_id,
    authors.policy,
    ordered.session_id
FROM ordered
INNER JOIN task_names ON task_names.task_id = ordered.task_id
INNER JOIN workloads ON workloads.workload_id = ordered.workload_id
LEFT JOIN authors
    ON authors.kernel_id = ordered.kernel_id AND authors.task_id = ordered.task_id
WHERE ordered.previous_low IS NULL OR ordered.speedup_low > ordered.previous_low
ORDER BY
    ordered.task_id, ordered.workload_id, ordered.device, ordered.baseline,
    ordered.measured_at, ordered.session_id
