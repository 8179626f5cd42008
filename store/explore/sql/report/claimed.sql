-- Published speedups, as published
-- One row per GPU and baseline of a source. This project measured none of these figures. n counts
-- figures, and with code counts those whose kernel was released. The last column counts a task of
-- the suite without a figure as 1.0.
-- Empty: No published figures are in the lake: store import cuda-l1 DIR or store import published.
WITH suites AS (
    SELECT suite, suite_revision, count(DISTINCT "name") AS tasks
    FROM task_labels
    GROUP BY suite, suite_revision
)
SELECT
    claimed."source", claimed.source_revision AS revision, claimed.gpu,
    quantile_cont(claimed.speedup, 0.5) AS p50, claimed.baseline,
    any_value(suites.tasks) AS tasks,
    count(*) AS n,
    count(*) FILTER (WHERE claimed.released) AS with_code,
    count(*) FILTER (WHERE claimed.speedup > 1.01) AS faster,
    exp(avg(ln(claimed.speedup))) AS geomean,
    avg(claimed.speedup) AS mean,
    quantile_cont(claimed.speedup, 0.25) AS p25,
    quantile_cont(claimed.speedup, 0.75) AS p75,
    max(claimed.speedup) AS max,
    avg(claimed.speedup) FILTER (WHERE claimed.released) AS mean_with_code,
    (sum(claimed.speedup) + greatest(any_value(suites.tasks) - count(*), 0))
    / greatest(any_value(suites.tasks), count(*)) AS mean_missing_as_1
FROM claimed_speedups AS claimed
LEFT JOIN suites
    ON suites.suite = claimed.suite AND suites.suite_revision = claimed.suite_revision
GROUP BY ALL
ORDER BY claimed."source", revision, claimed.gpu,
    any_value(claimed.baseline <> 'eager'), claimed.baseline
LIMIT 80
