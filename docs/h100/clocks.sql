-- What each clock of the H100 says: sessions, those that are noisy, and the speedups over eager and
-- over torch.compile of the quiet ones, by policy. Weak tasks are left out.
SELECT
    "precision" AS policy,
    clock,
    baseline,
    count(*) AS sessions,
    count(*) FILTER (WHERE noisy) AS noisy,
    round(exp(avg(ln(speedup)) FILTER (WHERE NOT noisy)), 3) AS geomean,
    round(median(speedup) FILTER (WHERE NOT noisy), 3) AS median
FROM speedups
WHERE device = 'H100' AND evaluator = 'judge' AND task_id NOT IN (FROM weak_tasks)
GROUP BY ALL
ORDER BY ALL
