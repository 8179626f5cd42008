-- Where the seconds of judging a correct kernel go on the H200: the median of each part, and of all.
WITH judged AS (
    SELECT evaluation_id, wall_s, parts_s
    FROM evaluations
    WHERE
        evaluator = 'judge' AND status = 'correct'
        AND device_id IN (SELECT device_id FROM devices WHERE "name" = 'H200')
),
parts AS (
    SELECT judged.evaluation_id, part."key" AS part, part."value"::DOUBLE AS seconds
    FROM judged CROSS JOIN json_each(judged.parts_s) AS part
    UNION ALL
    SELECT evaluation_id, 'all', wall_s
    FROM judged
)
SELECT part, count(*) AS kernels, round(median(seconds), 2) AS median_s
FROM parts
GROUP BY part
ORDER BY median_s DESC
