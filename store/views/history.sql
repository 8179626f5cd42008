-- One row per session that set a new best speedup for its task, workload, device and baseline.
-- This is the running maximum, over time, of the speedup's lower bound, as in all rankings.
-- Only the clock and the precision that rank the task count (default_clocks). Quarantined and
-- nonequivalent kernels are left out, so a record that was taken back disappears from the curve.
WITH ordered AS (
    SELECT
        task_id, workload_id, device, baseline, kernel_id, session_id, measured_at,
        speedup, speedup_low, speedup_high, clock, "precision",
        max(speedup_low) OVER (
            PARTITION BY task_id, workload_id, device, baseline
            ORDER BY measured_at, session_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS previous_low
    FROM rankable_sessions
    WHERE ranked
)
SELECT
    ordered.task_id,
    task_names."name" AS task,
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
