-- One row per draw and score bucket of its task and island: the key by which the draw takes buckets.
-- A draw takes buckets in descending order of z_i / temperature - ln(-ln(u_i)), where u_i is a hash of
-- seed, task, draw and bucket: the same draw everywhere. These are draws without replacement
-- (Gumbel-max), each time with P(B_i) = exp(z_i / temperature), normalized over the buckets that may
-- still be taken. z_i = (mean_i - mu) / sigma, where mean_i is the bucket's mean score, and mu and
-- sigma are mean and population standard deviation of these means. CUDA-L1's equation 1 is P(B_i) =
-- exp((mean_i - mu) / tau), without a value of tau. Here tau = temperature * sigma: the speedups of one
-- task differ by tenths and those of another by tens, where one tau for both would be uniform for the
-- first or always take the fastest bucket of the second. With $uniform, P(B_i) is instead the bucket's
-- share of kernels, so that each kernel is as likely as another.
-- low and reach say whether the bucket has a kernel that differs from a given one (pick.sql).
-- `placed` (placed.sql) and `draws` (row_index, task_id, draw) are registered.
-- Grows at HASH_JOIN: each draw weighs all buckets of its task and island.
WITH buckets AS (
    SELECT
        task_id, island, bucket,
        min(reach) FILTER (WHERE shown) AS reach,
        max(low) FILTER (WHERE shown) AS low,
        count(*) FILTER (WHERE shown) AS kernels,
        -- Decimals add up to the same sum in any order.
        CAST(sum(CAST(score AS DECIMAL(18, 6))) AS DOUBLE) / count(*) AS mean_score
    FROM placed
    GROUP BY task_id, island, bucket
),
centers AS (
    SELECT
        task_id, island,
        -- Lists are added up in their order, which gives the same sums everywhere.
        list(mean_score ORDER BY bucket) AS means,
        list_avg(means) AS mu,
        list_stddev_pop(means) AS sigma
    FROM buckets
    WHERE kernels > 0
    GROUP BY task_id, island
),
shores AS (
    SELECT task_id, list(DISTINCT island ORDER BY island) AS islands
    FROM buckets
    WHERE kernels > 0
    GROUP BY task_id
),
landed AS (
    SELECT
        draws.row_index, draws.task_id, draws.draw,
        shores.islands[1 + (
            md5_number_lower(concat_ws(':', $seed, 'island', draws.task_id, draws.draw))
            % len(shores.islands)
        )::BIGINT] AS island
    FROM draws
    INNER JOIN shores ON shores.task_id = draws.task_id
),
keyed AS (
    SELECT
        landed.*, buckets.bucket, buckets.low, buckets.reach,
        -- 52 bits of the hash, moved off both ends: 0 < u < 1.
        (
            (
                md5_number_lower(
                    concat_ws(
                        ':', $seed, CASE WHEN $uniform THEN 'random' ELSE 'bucket' END,
                        landed.task_id, landed.draw, buckets.bucket
                    )
                ) >> 12
            )::DOUBLE + 0.5
        ) / 4503599627370496 AS u,
        CASE
            WHEN $uniform THEN ln(buckets.kernels)
            -- A bucket that is alone is 0 standard deviations from the mean.
            ELSE coalesce((buckets.mean_score - centers.mu) / nullif(centers.sigma, 0), 0)
                / $temperature
        END AS logit
    FROM landed
    INNER JOIN centers ON centers.task_id = landed.task_id AND centers.island = landed.island
    INNER JOIN buckets ON buckets.task_id = landed.task_id AND buckets.island = landed.island
    WHERE buckets.kernels > 0
)
SELECT row_index, task_id, draw, island, bucket, low, reach, logit - ln(-ln(u)) AS bucket_key
FROM keyed
