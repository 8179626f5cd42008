-- The geometric mean of the expected speedups of each arm. Reads `units`.
SELECT arm, count(DISTINCT task_id) AS tasks, round(exp(avg(score)), 4) AS geomean
FROM units
GROUP BY arm
ORDER BY geomean DESC
