-- What each clock says, by device and policy: sessions, those that are noisy, and the speedups over
-- each baseline in the quiet ones. Kernels released for the H100; weak tasks and kernels that compute
-- another function are left out, and sessions under allow_tf32 (tf32.sql).
SELECT
    device,
    "precision" AS policy,
    clock,
    baseline,
    count(*) AS sessions,
    count(*) FILTER (WHERE noisy) AS noisy,
    round(exp(avg(ln(speedup)) FILTER (WHERE NOT noisy)), 3) AS geomean,
    round(median(speedup) FILTER (WHERE NOT noisy), 3) AS median
FROM speedups
ANTI JOIN nonequivalent
    ON nonequivalent.kernel_id = speedups.kernel_id AND nonequivalent.task_id = speedups.task_id
WHERE
    evaluator = 'judge' AND "precision" <> 'allow_tf32' AND speedups.task_id NOT IN (FROM weak_tasks)
    AND speedups.kernel_id IN (SELECT kernel_id FROM claimed_speedups WHERE gpu = 'H100' AND released)
GROUP BY ALL
ORDER BY ALL
