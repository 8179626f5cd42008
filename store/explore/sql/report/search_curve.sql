-- Best so far by variant
-- Geometric mean over tasks of the best speedup over the best baseline after a number of attempts at
-- each task; tasks without a faster kernel count as 1. A line is a variant (column arm): the
-- geometric mean of its seeds, with the mean of their intervals over tasks (95 %).
-- Empty: No search with variants has a measured kernel yet: trainers rollout --rounds.
SELECT
    regexp_extract(namespace, '^(.+)/[a-z]+/\d+(/[0-9a-f]+)?$', 1) AS search,
    device, policy, arm, attempt,
    count(*) AS seeds, max(tasks) AS tasks,
    exp(avg(ln(geomean))) AS geomean, exp(avg(ln(low))) AS low, exp(avg(ln(high))) AS high,
    avg(solved) AS solved, avg(faster) AS faster, avg(seconds) AS seconds
FROM search_curves
WHERE baseline = 'best' AND arm IS NOT NULL
GROUP BY search, device, policy, arm, attempt
ORDER BY search, device, policy, arm, attempt
