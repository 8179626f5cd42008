-- Buckets of one task, slowest first: kernels, mean score, and the probability of the first draw.
-- `eligible` is registered and holds the one task. Buckets are cut as in bucket.sql; one that is a
-- score of its own begins and ends at its score. Exponents are taken relative to the largest, so
-- that none overflows; the quotient is that of bucket.sql.
WITH cut AS (
    SELECT kernel_id, score, floor(score / $bucket_width)::BIGINT AS wide_bucket
    FROM eligible
),
placed AS (
    SELECT
        kernel_id, score, wide_bucket,
        $exemplars > 1 AND min(wide_bucket) OVER () = max(wide_bucket) OVER () AS alone,
        dense_rank() OVER (ORDER BY score) AS place
    FROM cut
),
buckets AS (
    SELECT
        CASE WHEN alone THEN place ELSE wide_bucket END AS bucket,
        CASE WHEN alone THEN score ELSE wide_bucket * $bucket_width END AS score_from,
        CASE WHEN alone THEN score ELSE (wide_bucket + 1) * $bucket_width END AS score_to,
        count(*) AS kernels,
        list(kernel_id) AS kernel_ids,
        CAST(sum(CAST(score AS DECIMAL(18, 6))) AS DOUBLE) / count(*) AS mean_score
    FROM placed
    GROUP BY ALL
),
weighted AS (
    SELECT *, exp((mean_score - max(mean_score) OVER ()) / $temperature) AS weight
    FROM buckets
)
SELECT
    score_from,
    score_to,
    kernels,
    kernel_ids,
    mean_score,
    weight / sum(weight) OVER () AS probability
FROM weighted
ORDER BY bucket
