-- Exemplars out of distinct score buckets, one kernel uniformly out of each (CUDA-L1, equation 1).
-- A bucket holds the scores [k width, (k + 1) width) of a task. Buckets are drawn one after another
-- without replacement; each time with P(B_i) = exp((mean_i - mu) / temperature), normalized over
-- those that are left, where mean_i is the bucket's mean score and mu the mean over buckets.
-- The $exemplars largest of (mean_i - mu) / temperature - ln(-ln(u_i)) are exactly such draws
-- (Gumbel-max), and u_i is a hash of seed, task, draw and bucket: the same draw everywhere.
-- Where all scores of a task fall into one bucket, each distinct score is a bucket of its own, so that
-- a prompt that asks for several exemplars has them.
-- With $islands > 1 kernels live on islands by a hash of their id, and a draw stays on one of them.
-- The kernels of islands with too few scores for a prompt join the first island that has enough, or,
-- if none has, one another.
-- `eligible` (task_id, kernel_id, score) and `draws` (row_index, task_id, draw) are registered.
-- Grows at HASH_JOIN: each draw weighs all buckets of its task and island.
WITH hashed AS (
    SELECT
        task_id, kernel_id, score,
        floor(score / $bucket_width)::BIGINT AS wide_bucket,
        CASE WHEN $islands > 1 THEN (md5_number_lower(kernel_id) % $islands)::BIGINT ELSE 0 END
            AS island
    FROM eligible
),
counted AS (
    SELECT task_id, island, count(DISTINCT score) >= $exemplars AS enough
    FROM hashed
    GROUP BY task_id, island
),
merged AS (
    SELECT
        task_id, island,
        CASE
            WHEN enough THEN island
            ELSE coalesce(min(island) FILTER (WHERE enough) OVER (PARTITION BY task_id), -1)
        END AS joined
    FROM counted
),
cut AS (
    SELECT hashed.task_id, hashed.kernel_id, hashed.score, hashed.wide_bucket, merged.joined AS island
    FROM hashed
    INNER JOIN merged ON merged.task_id = hashed.task_id AND merged.island = hashed.island
),
placed AS (
    SELECT
        task_id, kernel_id, score, island,
        CASE
            WHEN $exemplars > 1 AND min(wide_bucket) OVER here = max(wide_bucket) OVER here
                THEN dense_rank() OVER (PARTITION BY task_id, island ORDER BY score)
            ELSE wide_bucket
        END AS bucket
    FROM cut
    WINDOW here AS (PARTITION BY task_id, island)
),
buckets AS (
    SELECT
        task_id, island, bucket, count(*) AS kernels,
        -- Decimals add up to the same sum in any order.
        CAST(sum(CAST(score AS DECIMAL(18, 6))) AS DOUBLE) / count(*) AS mean_score
    FROM placed
    GROUP BY task_id, island, bucket
),
centres AS (
    SELECT
        task_id, island,
        CAST(sum(CAST(mean_score AS DECIMAL(18, 6))) AS DOUBLE) / count(*) AS mu
    FROM buckets
    GROUP BY task_id, island
),
shores AS (
    SELECT task_id, list(island ORDER BY island) AS islands
    FROM centres
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
        landed.row_index, landed.task_id, landed.draw, landed.island,
        -- 52 bits of the hash, moved off both ends: 0 < u < 1.
        (
            (
                md5_number_lower(
                    concat_ws(':', $seed, 'bucket', landed.task_id, landed.draw, buckets.bucket)
                ) >> 12
            )::DOUBLE + 0.5
        ) / 4503599627370496 AS u,
        (buckets.mean_score - centres.mu) / $temperature AS logit,
        buckets.bucket,
        buckets.kernels
    FROM landed
    INNER JOIN centres ON centres.task_id = landed.task_id AND centres.island = landed.island
    INNER JOIN buckets ON buckets.task_id = landed.task_id AND buckets.island = landed.island
),
drawn AS (
    SELECT
        row_index, task_id, draw, island,
        unnest(
            max({'key': logit - ln(-ln(u)), 'bucket': bucket, 'kernels': kernels}, $exemplars)
        ) AS won
    FROM keyed
    GROUP BY row_index, task_id, draw, island
),
chosen AS (
    SELECT
        row_index, task_id, draw, island, won.bucket AS bucket,
        (
            md5_number_lower(concat_ws(':', $seed, 'kernel', task_id, draw, won.bucket))
            % won.kernels
        )::BIGINT AS place
    FROM drawn
),
numbered AS (
    SELECT
        placed.task_id, placed.island, placed.bucket, placed.kernel_id, placed.score,
        row_number() OVER (
            PARTITION BY placed.task_id, placed.island, placed.bucket ORDER BY placed.kernel_id
        ) - 1 AS place
    FROM placed
    SEMI JOIN chosen
        ON
            chosen.task_id = placed.task_id
            AND chosen.island = placed.island
            AND chosen.bucket = placed.bucket
)
SELECT chosen.row_index, chosen.task_id, chosen.draw, numbered.kernel_id, numbered.score
FROM chosen
INNER JOIN numbered
    ON
        numbered.task_id = chosen.task_id
        AND numbered.island = chosen.island
        AND numbered.bucket = chosen.bucket
        AND numbered.place = chosen.place
