-- How many of the figure's kernels hold at other shapes, and the worst speedup over eager there.
SELECT
    best.device,
    count(*) AS tried,
    count(*) FILTER (WHERE shapes.holds) AS held,
    min(shapes.worst) AS worst
FROM best_kernels AS best
INNER JOIN shapes
    ON
        shapes.kernel_id = best.kernel_id
        AND shapes.task_id = best.task_id
        AND shapes.device = best.device
WHERE best.baseline = 'eager'
GROUP BY best.device
ORDER BY best.device
