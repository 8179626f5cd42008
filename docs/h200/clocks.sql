-- What each clock says, by device and precision: kernels, those without a session that ranks (disturbed, contended or
-- too short for the clock), and the speedups over each baseline of the others. A kernel with several sessions has
-- their geometric mean. fastest is the fastest baseline of each kernel. Kernels released for the H100; trivial tasks
-- and kernels that compute another function are left out, and sessions under allow_tf32 (tf32.sql).
WITH measured AS (
    SELECT
        device, "precision", clock, baseline, speedups.kernel_id, speedups.task_id,
        exp(avg(ln(speedup)) FILTER (WHERE NOT disturbed AND NOT unresolved)) AS speedup
    FROM speedups
    ANTI JOIN nonequivalent
        ON nonequivalent.kernel_id = speedups.kernel_id AND nonequivalent.task_id = speedups.task_id
    WHERE
        evaluator = 'judge' AND correct AND "precision" <> 'allow_tf32'
        AND speedups.task_id NOT IN (FROM weak_tasks)
        AND speedups.kernel_id IN (SELECT kernel_id FROM claimed_speedups WHERE gpu = 'H100' AND released)
    GROUP BY ALL
),
arms AS (
    FROM measured
    UNION ALL
    SELECT device, "precision", clock, 'fastest' AS baseline, kernel_id, task_id, min(speedup) AS speedup
    FROM measured
    GROUP BY ALL
)
SELECT
    device,
    "precision",
    clock,
    baseline,
    count(*) AS kernels,
    count(*) - count(speedup) AS unranked,
    round(exp(avg(ln(speedup))), 3) AS geomean,
    round(median(speedup), 3) AS median
FROM arms
GROUP BY ALL
ORDER BY ALL
