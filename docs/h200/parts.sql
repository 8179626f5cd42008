-- Where the seconds of a verdict go, by device: the mean of each part, over the verdicts on correct kernels
-- under PyTorch's own flags. waiting is the time in which other judges had the GPU; the rows of the H100 do
-- not have it. The last rows are medians: of these verdicts as a whole, and of verdicts under fp32_strict
-- that reuse one. Kernels released for the H100.
WITH judged AS (
    SELECT
        devices."name" AS device, evaluations.evaluation_id, evaluations."precision", evaluations.parts_s,
        evaluations.wall_s, contains(evaluations.parts_s, '"flags"') AS reuses
    FROM evaluations
    INNER JOIN devices ON devices.device_id = evaluations.device_id
    WHERE
        evaluations.status = 'correct'
        AND evaluations.kernel_id IN (
            SELECT kernel_id FROM claimed_speedups WHERE gpu = 'H100' AND released
        )
),
counted AS (
    SELECT device, count(*) AS verdicts FROM judged
    WHERE "precision" = 'torch_default' AND NOT reuses
    GROUP BY device
),
means AS (
    SELECT part."key" AS part, judged.device, sum(part."value"::DOUBLE) / any_value(counted.verdicts) AS seconds
    FROM judged
    INNER JOIN counted ON counted.device = judged.device
    CROSS JOIN json_each(judged.parts_s) AS part
    WHERE judged."precision" = 'torch_default' AND NOT judged.reuses
    GROUP BY part."key", judged.device
),
medians AS (
    SELECT
        CASE WHEN reuses THEN 'whole, reused (median)' ELSE 'whole (median)' END AS part,
        device, median(wall_s) AS seconds
    FROM judged
    WHERE "precision" = CASE WHEN reuses THEN 'fp32_strict' ELSE 'torch_default' END
    GROUP BY reuses, device
),
shown AS (
    SELECT 1 AS place, * FROM means
    UNION ALL
    SELECT 2 AS place, * FROM medians
)
SELECT
    part,
    round(any_value(seconds) FILTER (WHERE device = 'H200'), 2) AS h200_s,
    round(any_value(seconds) FILTER (WHERE device = 'H100'), 2) AS h100_s
FROM shown
GROUP BY place, part
ORDER BY place, h200_s DESC, part
