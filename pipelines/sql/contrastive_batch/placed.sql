-- One row per scored kernel: its island, its bucket, and whether a prompt may show it.
-- Two scores differ where the interval of their ratio excludes 1: where low of the faster kernel is
-- above reach of the slower one (scores_measured.sql, scores_claimed.sql). beside_reference: the
-- kernel differs from the reference, whose score is 1.
-- A bucket holds the scores [k width, (k + 1) width) of a task. shown: the kernel differs from one in
-- another bucket of its island. Where no two buckets have such kernels and one bucket has, each
-- distinct score is a bucket of its own. Where no two kernels differ, or for prompts of one kernel,
-- shown are the kernels that differ from the reference, or with $reference false those of such
-- prompts alone, whatever their score.
-- With $islands > 1 kernels live on islands by a hash of their id. The kernels of islands on which no
-- two kernels differ join the first island on which two do, or, if there is none, one another.
-- `eligible` (task_id, kernel_id, score, low, reach, beside_reference) is defined.
WITH hashed AS (
    SELECT
        task_id, kernel_id, score, low, reach, beside_reference,
        floor(score / $bucket_width)::BIGINT AS wide_bucket,
        CASE WHEN $islands > 1 THEN (md5_number_lower(kernel_id) % $islands)::BIGINT ELSE 0 END
            AS island
    FROM eligible
),
counted AS (
    SELECT
        task_id, island,
        CASE WHEN $exemplars > 1 THEN max(low) > min(reach) ELSE bool_or(beside_reference) END
            AS enough
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
located AS (
    SELECT hashed.* REPLACE (merged.joined AS island)
    FROM hashed
    INNER JOIN merged ON merged.task_id = hashed.task_id AND merged.island = hashed.island
),
-- Kernels are compared with the bounds of buckets, since there are few buckets.
buckets AS (
    SELECT task_id, island, wide_bucket, min(reach) AS reach, max(low) AS low
    FROM located
    GROUP BY task_id, island, wide_bucket
),
bounds AS (
    SELECT
        *,
        min(reach) OVER slower AS reach_below,
        max(low) OVER faster AS low_above,
        min(reach) OVER here AS least_reach,
        max(low) OVER here AS most_low
    FROM buckets
    WINDOW
        here AS (PARTITION BY task_id, island),
        slower AS (
            PARTITION BY task_id, island ORDER BY wide_bucket
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ),
        faster AS (
            PARTITION BY task_id, island ORDER BY wide_bucket DESC
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        )
),
decided AS (
    SELECT
        *,
        $exemplars > 1 AND most_low > least_reach AS paired,
        bool_or(coalesce(low > reach_below, false) OR coalesce(reach < low_above, false))
            OVER (PARTITION BY task_id, island) AS buckets_differ
    FROM bounds
),
own_buckets AS (
    SELECT
        task_id, island, score,
        row_number() OVER (PARTITION BY task_id, island ORDER BY score) AS place
    FROM (
        SELECT DISTINCT located.task_id, located.island, located.score
        FROM located
        INNER JOIN decided
            ON
                decided.task_id = located.task_id
                AND decided.island = located.island
                AND decided.wide_bucket = located.wide_bucket
        WHERE decided.paired AND NOT decided.buckets_differ
    )
)
SELECT
    located.task_id, located.kernel_id, located.score, located.low, located.reach,
    located.beside_reference, located.island, decided.paired,
    own_buckets.place IS NOT NULL AS alone,
    coalesce(own_buckets.place, located.wide_bucket) AS bucket,
    CASE
        WHEN decided.paired AND decided.buckets_differ
            THEN
                coalesce(located.low > decided.reach_below, false)
                OR coalesce(located.reach < decided.low_above, false)
        WHEN decided.paired
            THEN located.low > decided.least_reach OR located.reach < decided.most_low
        WHEN $reference THEN located.beside_reference
        ELSE $exemplars = 1
    END AS shown
FROM located
INNER JOIN decided
    ON
        decided.task_id = located.task_id
        AND decided.island = located.island
        AND decided.wide_bucket = located.wide_bucket
LEFT JOIN own_buckets
    ON
        own_buckets.task_id = located.task_id
        AND own_buckets.island = located.island
        AND own_buckets.score = located.score
