-- Speedups of kernels in figures
-- One row per baseline over the kernels of the charts above.
-- Empty: No correct kernel has a quiet timing session yet: evaluators run.
SELECT
    task_names.suite || ' ' || task_names.suite_revision AS suite,
    speeds.device, speeds.baseline,
    quantile_cont(speeds.speedup, 0.5) AS p50,
    count(*) AS n,
    count(DISTINCT speeds.task_id) AS tasks,
    exp(avg(ln(speeds.speedup))) AS geomean,
    avg(speeds.speedup) AS mean,
    min(speeds.speedup) AS min,
    quantile_cont(speeds.speedup, 0.05) AS p5,
    quantile_cont(speeds.speedup, 0.25) AS p25,
    quantile_cont(speeds.speedup, 0.75) AS p75,
    quantile_cont(speeds.speedup, 0.95) AS p95,
    max(speeds.speedup) AS max,
    count(*) FILTER (WHERE speeds.speedup > 1.01) / count(*) AS share_faster
FROM counted_speedups AS speeds
INNER JOIN task_names ON task_names.task_id = speeds.task_id
GROUP BY ALL
ORDER BY suite, speeds.device, any_value(speeds.baseline <> 'eager'), speeds.baseline
LIMIT 60
