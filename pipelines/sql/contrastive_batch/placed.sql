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
compared AS (
    SELECT
        hashed.* EXCLUDE (island), merged.joined AS island,
        low > min(reach) OVER here OR reach < max(low) OVER here AS differs,
        coalesce(low > min(reach) OVER slower, false)
        OR coalesce(reach < max(low) OVER faster, false) AS differs_between_buckets,
        dense_rank() OVER (PARTITION BY hashed.task_id, merged.joined ORDER BY score) AS place
    FROM hashed
    INNER JOIN merged ON merged.task_id = hashed.task_id AND merged.island = hashed.island
    WINDOW
        here AS (PARTITION BY hashed.task_id, merged.joined),
        slower AS (
            PARTITION BY hashed.task_id, merged.joined ORDER BY wide_bucket
            GROUPS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ),
        faster AS (
            PARTITION BY hashed.task_id, merged.joined ORDER BY wide_bucket DESC
            GROUPS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        )
),
decided AS (
    SELECT
        *,
        $exemplars > 1 AND bool_or(differs) OVER here AS paired,
        bool_or(differs_between_buckets) OVER here AS buckets_differ
    FROM compared
    WINDOW here AS (PARTITION BY task_id, island)
)
SELECT
    task_id, kernel_id, score, low, reach, beside_reference, island, paired,
    paired AND NOT buckets_differ AS alone,
    CASE WHEN paired AND NOT buckets_differ THEN place ELSE wide_bucket END AS bucket,
    CASE
        WHEN paired AND buckets_differ THEN differs_between_buckets
        WHEN paired THEN differs
        WHEN $reference THEN beside_reference
        ELSE $exemplars = 1
    END AS shown
FROM decided
