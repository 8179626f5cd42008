-- Correct kernels for the H100 at other shapes than their task's, on H200s by version 13 of the judge. ranked:
-- kernels of best_kernels by the clock gpu. worst: smallest speedup over eager at a shape that was timed. added
-- is the time of drawing and judging shapes over that of the rest of the verdict.
WITH judged AS (
    SELECT
        evaluations.*, workloads."name" AS workload
    FROM evaluations
    INNER JOIN devices ON devices.device_id = evaluations.device_id
    INNER JOIN workloads ON workloads.workload_id = evaluations.workload_id
    WHERE devices."name" = 'H200' AND evaluator_version = 13
),
added AS (
    SELECT
        own.kernel_id,
        (any_value((own.parts_s ->> 'drawing')::DOUBLE) + coalesce(sum(other.wall_s), 0))
        / (any_value(own.wall_s) - any_value((own.parts_s ->> 'drawing')::DOUBLE)) AS share
    FROM judged AS own
    LEFT JOIN judged AS other ON other.kernel_id = own.kernel_id AND other.workload <> 'default'
    WHERE own.workload = 'default' AND own.status = 'correct'
    GROUP BY own.kernel_id
),
kernels AS (
    SELECT
        added.kernel_id, added.share, shapes.*,
        added.kernel_id IN (
            SELECT kernel_id FROM best_kernels WHERE device = 'H200' AND clock = 'gpu'
        ) AS ranked
    FROM added
    LEFT JOIN shapes ON shapes.kernel_id = added.kernel_id AND shapes.device = 'H200'
)
SELECT
    CASE WHEN grouping(ranked) = 1 THEN 'all' WHEN ranked THEN 'ranked' ELSE 'not ranked' END AS kernels,
    count(*) AS correct,
    count(tried) AS tried,
    count(*) FILTER (WHERE holds) AS hold,
    count(*) FILTER (WHERE raises > 0 AND wrong = 0) AS raise,
    count(*) FILTER (WHERE wrong > 0) AS wrong,
    count(worst) AS timed,
    round(min(worst), 2) AS worst,
    round(median(worst), 2) AS median_worst,
    round(100 * median(share), 1) AS added_percent,
    round(100 * quantile_cont(share, 0.95), 1) AS added_p95
FROM kernels
GROUP BY GROUPING SETS ((), (ranked))
ORDER BY correct DESC
