-- What each clock says, by device and policy: sessions, those that do not rank (disturbed, contended or too
-- short for the clock), and the speedups over each baseline in the others. fastest is the fastest baseline of each
-- session. Kernels released for the H100; weak tasks and kernels that compute another function are left
-- out, and sessions under allow_tf32 (tf32.sql).
WITH sessions AS (
    SELECT device, "precision" AS policy, clock, baseline, session_id, speedup,
        disturbed OR unresolved AS unranked
    FROM speedups
    ANTI JOIN nonequivalent
        ON nonequivalent.kernel_id = speedups.kernel_id AND nonequivalent.task_id = speedups.task_id
    WHERE
        evaluator = 'judge' AND "precision" <> 'allow_tf32' AND speedups.task_id NOT IN (FROM weak_tasks)
        AND speedups.kernel_id IN (SELECT kernel_id FROM claimed_speedups WHERE gpu = 'H100' AND released)
),
arms AS (
    FROM sessions
    UNION ALL
    SELECT
        device, policy, clock, 'fastest' AS baseline, session_id,
        min(speedup) FILTER (WHERE NOT unranked) AS speedup,
        bool_and(unranked) AS unranked
    FROM sessions
    GROUP BY device, policy, clock, session_id
)
SELECT
    device,
    policy,
    clock,
    baseline,
    count(*) AS sessions,
    count(*) FILTER (WHERE unranked) AS unranked,
    round(exp(avg(ln(speedup)) FILTER (WHERE NOT unranked)), 3) AS geomean,
    round(median(speedup) FILTER (WHERE NOT unranked), 3) AS median
FROM arms
GROUP BY ALL
ORDER BY ALL
