-- Without those rows
-- The same release, each row of the last table left out; what remains is still a claim.
-- Empty: The release is not in this lake; run: store import cuda-l1 PATH
WITH read (task, gpu) AS (
    VALUES
    ('level2/83', NULL), ('level1/9', NULL), ('level2/80', NULL), ('level2/66', NULL),
    ('level1/12', NULL), ('level2/96', 'H100')
),
scores AS (
    SELECT
        claimed.gpu,
        claimed.speedup,
        claimed.released
        AND features.parsed
        AND quarantined.kernel_id IS NULL
        AND read.task IS NULL AS holds
    FROM claimed_speedups AS claimed
    LEFT JOIN read
        ON read.task = claimed.task AND claimed.gpu = coalesce(read.gpu, claimed.gpu)
    LEFT JOIN features ON features.kernel_id = claimed.kernel_id
    LEFT JOIN quarantined ON quarantined.kernel_id = claimed.kernel_id
    WHERE claimed.source = 'cuda-l1' AND claimed.baseline = 'eager'
)
SELECT
    gpu,
    round(avg(speedup), 2) AS mean_scored,
    round(avg(speedup) FILTER (WHERE holds), 2) AS mean,
    round(median(speedup) FILTER (WHERE holds), 2) AS median,
    round(exp(avg(ln(speedup)) FILTER (WHERE holds)), 2) AS geomean,
    max(speedup) FILTER (WHERE holds) AS highest,
    count(*) FILTER (WHERE holds) AS n,
    count(*) FILTER (WHERE NOT holds) AS left_out
FROM scores
GROUP BY gpu
ORDER BY gpu
