-- Where the seconds of a verdict under PyTorch's own flags on a correct kernel go, by device: the mean of
-- each part. waiting is the time in which other judges had the GPU; the rows of the H100 do not have it.
-- Kernels released for the H100.
WITH judged AS (
    SELECT devices."name" AS device, evaluations.evaluation_id, evaluations.parts_s
    FROM evaluations
    INNER JOIN devices ON devices.device_id = evaluations.device_id
    WHERE
        evaluations.status = 'correct' AND evaluations.policy = 'torch_default'
        AND evaluations.parts_s NOT LIKE '%"flags"%'
        AND evaluations.kernel_id IN (
            SELECT kernel_id FROM claimed_speedups WHERE gpu = 'H100' AND released
        )
),
parts AS (
    SELECT judged.device, judged.evaluation_id, part."key" AS part, part."value"::DOUBLE AS seconds
    FROM judged CROSS JOIN json_each(judged.parts_s) AS part
)
SELECT
    part,
    round(sum(seconds) FILTER (WHERE device = 'H200') / count(DISTINCT evaluation_id) FILTER (WHERE device = 'H200'), 2)
        AS h200_mean_s,
    round(sum(seconds) FILTER (WHERE device = 'H100') / count(DISTINCT evaluation_id) FILTER (WHERE device = 'H100'), 2)
        AS h100_mean_s
FROM parts
GROUP BY part
ORDER BY h200_mean_s DESC
