-- One session of each kernel, device, workload, precision and clock: the newest one that ranks, or else
-- the newest, with the reason in ranks_nothing. Sessions that rank come first, in the order of their
-- lower bounds over eager. fastest is the baseline of the smallest speedup. Kernels that
-- compute another function are left out. shapes: at how many other shapes a kernel is correct, and
-- its worst speedup there.
--
-- key columns: kernel, device, clock, eager, low, high, samples, ranks_nothing
WITH sessions AS (
    SELECT
        speedups.kernel_id, speedups.device, threads, workload_id, "precision", speedups.clock,
        speedups.session_id,
        any_value(speedup) FILTER (WHERE baseline = 'eager') AS eager,
        any_value(speedup_low) FILTER (WHERE baseline = 'eager') AS low,
        any_value(speedup_high) FILTER (WHERE baseline = 'eager') AS high,
        arg_min(baseline, speedup) AS fastest,
        min(speedup) AS over_fastest,
        max(n) AS samples,
        any_value(unranked.reason) AS ranks_nothing,
        max(speedups.measured_at) AS measured_at
    FROM speedups
    LEFT JOIN (SELECT * FROM unranked_sessions WHERE task_id = $task_id) AS unranked
        ON
            unranked.session_id = speedups.session_id
            AND unranked.clock = speedups.clock
            AND unranked.kernel_id = speedups.kernel_id
    ANTI JOIN nonequivalent
        ON
            nonequivalent.kernel_id = speedups.kernel_id
            AND nonequivalent.task_id = speedups.task_id
    WHERE speedups.task_id = $task_id
    GROUP BY ALL
)
SELECT
    left(sessions.kernel_id, 12) AS kernel,
    sessions.device,
    threads,
    workloads."name" AS workload,
    "precision",
    clock,
    round(eager, 3) AS eager,
    round(low, 3) AS low,
    round(high, 3) AS high,
    fastest,
    round(over_fastest, 3) AS over_fastest,
    samples,
    shapes.shapes,
    ranks_nothing
FROM sessions
LEFT JOIN workloads ON workloads.workload_id = sessions.workload_id
LEFT JOIN shapes
    ON
        shapes.kernel_id = sessions.kernel_id
        AND shapes.task_id = $task_id
        AND shapes.device = sessions.device
QUALIFY row_number() OVER (
    PARTITION BY sessions.kernel_id, sessions.device, sessions.workload_id, "precision", clock
    ORDER BY ranks_nothing IS NOT NULL, measured_at DESC, session_id
) = 1
ORDER BY
    ranks_nothing IS NOT NULL, low DESC NULLS LAST, sessions.kernel_id, sessions.device, workload,
    "precision", clock
LIMIT 20
