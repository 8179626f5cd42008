-- One row per draw: the next kernel, which differs from all that the draw has taken.
-- The kernel is of the first bucket by its key that has such a kernel, and any of these is as likely
-- as another. A bucket that differs from one kernel has a kernel that does; if several kernels are
-- taken ($several), all kernels of the buckets are looked at.
-- `keyed` (buckets.sql), `placed` (placed.sql) and `taken` (row_index, bucket,
-- low, reach) are registered.
-- Grows at HASH_JOIN: each draw looks at all kernels of a bucket.
WITH clashing_buckets AS (
    SELECT keyed.row_index, keyed.bucket
    FROM keyed
    INNER JOIN taken ON taken.row_index = keyed.row_index
    WHERE
        keyed.bucket = taken.bucket
        OR (keyed.reach >= taken.low AND taken.reach >= keyed.low)
),
open_buckets AS (
    SELECT keyed.*
    FROM keyed
    ANTI JOIN clashing_buckets
        ON
            clashing_buckets.row_index = keyed.row_index
            AND clashing_buckets.bucket = keyed.bucket
    QUALIFY $several OR row_number() OVER (
        PARTITION BY keyed.row_index ORDER BY keyed.bucket_key DESC, keyed.bucket
    ) = 1
),
kernels AS (
    SELECT
        open_buckets.row_index, open_buckets.draw, open_buckets.bucket, open_buckets.bucket_key,
        placed.task_id, placed.kernel_id, placed.score, placed.low, placed.reach,
        placed.beside_reference
    FROM open_buckets
    INNER JOIN placed
        ON
            placed.task_id = open_buckets.task_id
            AND placed.island = open_buckets.island
            AND placed.bucket = open_buckets.bucket
    WHERE placed.shown
),
clashing_kernels AS (
    SELECT kernels.row_index, kernels.kernel_id
    FROM kernels
    INNER JOIN taken ON taken.row_index = kernels.row_index
    WHERE kernels.reach >= taken.low AND taken.reach >= kernels.low
),
fitting AS (
    SELECT
        kernels.*,
        count(*) OVER bucket AS choices,
        row_number() OVER (bucket ORDER BY kernels.kernel_id) - 1 AS turn,
        dense_rank() OVER (
            PARTITION BY kernels.row_index ORDER BY kernels.bucket_key DESC, kernels.bucket
        ) AS bucket_turn
    FROM kernels
    ANTI JOIN clashing_kernels
        ON
            clashing_kernels.row_index = kernels.row_index
            AND clashing_kernels.kernel_id = kernels.kernel_id
    WINDOW bucket AS (PARTITION BY kernels.row_index, kernels.bucket)
)
SELECT row_index, task_id, draw, bucket, kernel_id, score, low, reach, beside_reference
FROM fitting
WHERE
    bucket_turn = 1
    AND turn = (
        md5_number_lower(concat_ws(':', $seed, 'kernel', task_id, draw, bucket)) % choices
    )::BIGINT
