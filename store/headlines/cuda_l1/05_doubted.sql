-- Rows that do not hold, or that say nothing about kernels
-- Each with its reason: read from the released text, found by the parsers, or confirmed in this lake.
-- Empty: The release is not in this lake; run: store import cuda-l1 PATH
WITH read (task, gpu, reason) AS (
    VALUES
    ('level2/83', NULL, 'always zero; but for H100 the text is the slow graph'),
    ('level1/9', NULL, 'returns a Tensor that computes only when it is looked at'),
    ('level2/80', NULL, 'the answer is always zero, kept from the first call'),
    ('level2/66', NULL, 'the answer is always one, built beforehand'),
    ('level1/12', NULL, 'right, but what it beats is a wasteful reference'),
    ('level2/96', 'H100', 'the same text scores 5.9 to 16.2 on the other GPUs')
)
SELECT
    coalesce(
        read.reason,
        CASE
            WHEN NOT claimed.released THEN 'a score without code'
            WHEN NOT features.parsed THEN 'the released text is cut off and is not valid Python'
            WHEN quarantined.kernel_id IS NOT NULL THEN 'a finding on the kernel is confirmed'
        END
    ) AS reason,
    CASE WHEN read.task IS NOT NULL OR NOT features.parsed THEN claimed.task ELSE 'any' END AS task,
    count(*) AS "rows",
    max(claimed.speedup) AS highest,
    list(claimed.gpu ORDER BY claimed.speedup DESC)[1] AS highest_on
FROM claimed_speedups AS claimed
LEFT JOIN read ON read.task = claimed.task AND claimed.gpu = coalesce(read.gpu, claimed.gpu)
LEFT JOIN features ON features.kernel_id = claimed.kernel_id
LEFT JOIN quarantined ON quarantined.kernel_id = claimed.kernel_id
WHERE claimed.source = 'cuda-l1'
    AND claimed.baseline = 'eager'
    AND (
        read.task IS NOT NULL
        OR NOT claimed.released
        OR NOT features.parsed
        OR quarantined.kernel_id IS NOT NULL
    )
GROUP BY ALL
ORDER BY highest DESC
