-- Buckets of one task, slowest first: kernels, mean score, and the probability of the first draw.
-- `eligible` is registered and holds the one task. Exponents are taken relative to the largest, so
-- that none overflows; the quotient is that of bucket.sql.
WITH buckets AS (
    SELECT
        floor(score / $bucket_width)::BIGINT AS bucket,
        count(*) AS kernels,
        CAST(sum(CAST(score AS DECIMAL(18, 6))) AS DOUBLE) / count(*) AS mean_score
    FROM eligible
    GROUP BY bucket
),
weighted AS (
    SELECT *, exp((mean_score - max(mean_score) OVER ()) / $temperature) AS weight
    FROM buckets
)
SELECT
    bucket,
    bucket * $bucket_width AS score_from,
    (bucket + 1) * $bucket_width AS score_to,
    kernels,
    mean_score,
    weight / sum(weight) OVER () AS probability
FROM weighted
ORDER BY bucket
