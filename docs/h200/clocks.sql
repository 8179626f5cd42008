-- What each clock says, by device and policy: sessions, those that are noisy, and the speedups over
-- each baseline in the quiet ones. Kernels released for the H100; weak tasks are left out.
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
WHERE
    evaluator = 'judge' AND task_id NOT IN (FROM weak_tasks)
    AND kernel_id IN (SELECT kernel_id FROM claimed_speedups WHERE gpu = 'H100' AND released)
GROUP BY ALL
ORDER BY ALL
