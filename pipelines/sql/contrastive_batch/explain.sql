-- Buckets of one task, slowest first: kernels, mean score, and the probability of the first draw.
-- `placed` is registered and holds the one task (placed.sql). A bucket that is a score of its own
-- begins and ends at its score. Only buckets with a kernel to show are drawn. Exponents are taken
-- relative to the largest, so that none overflows; the quotient is that of buckets.sql.
WITH buckets AS (
    SELECT
        bucket,
        CASE WHEN alone THEN score ELSE bucket * $bucket_width END AS score_from,
        CASE WHEN alone THEN score ELSE (bucket + 1) * $bucket_width END AS score_to,
        count(*) AS kernels,
        count(*) FILTER (WHERE shown) AS shown,
        list(kernel_id) AS kernel_ids,
        CAST(sum(CAST(score AS DECIMAL(18, 6))) AS DOUBLE) / count(*) AS mean_score
    FROM placed
    GROUP BY ALL
),
measured AS (
    SELECT
        *,
        max(mean_score) FILTER (WHERE shown > 0) OVER () AS highest,
        stddev_pop(mean_score) FILTER (WHERE shown > 0) OVER () AS sigma
    FROM buckets
),
weighted AS (
    SELECT
        *,
        CASE
            WHEN shown = 0 THEN 0
            WHEN $uniform THEN shown
            ELSE exp(coalesce((mean_score - highest) / nullif(sigma, 0), 0) / $temperature)
        END AS weight
    FROM measured
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
