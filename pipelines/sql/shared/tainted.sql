-- One row per picked row that no dataset of this purpose may hold, with the reason.
-- Out are kernels of `excluded`, and those that are unfit for the row's task. A kernel is contaminated
-- as well when at least half of the bands of its near-duplicate signature are bands of `test_kernels`:
-- two texts share half of their 16 bands near a similarity of 0.92. Registered are `picked`
-- (row_index, task_id, kernel_ids), `unfit`, `excluded` and `test_kernels`.
-- Grows at UNNEST: a kernel has 16 bands.
WITH picked_kernels AS (
    SELECT DISTINCT unnest(kernel_ids) AS kernel_id
    FROM picked
),
sides AS (
    SELECT kernel_id, true AS picked
    FROM picked_kernels
    UNION ALL
    SELECT kernel_id, false
    FROM test_kernels
),
-- One scan for both sides.
signed AS MATERIALIZED (
    SELECT DISTINCT sides.picked, kernel_features.kernel_id, kernel_features.minhash_bands
    FROM kernel_features
    INNER JOIN sides ON sides.kernel_id = kernel_features.kernel_id
),
picked_bands AS (
    SELECT kernel_id, len(minhash_bands) AS bands, unnest(minhash_bands) AS band
    FROM signed
    WHERE picked
),
-- Few bands of the many test kernels are left by a test of one number.
test_bands AS (
    SELECT DISTINCT band
    FROM (SELECT unnest(minhash_bands) AS band FROM signed WHERE NOT picked)
    WHERE band IN (SELECT band FROM picked_bands)
),
shared_bands AS (
    SELECT DISTINCT picked_bands.*
    FROM test_bands
    INNER JOIN picked_bands ON picked_bands.band = test_bands.band
),
near_copies AS (
    SELECT DISTINCT kernel_id
    FROM shared_bands
    GROUP BY kernel_id, bands
    HAVING 2 * count(*) >= bands
),
bad AS (
    SELECT
        picked_kernels.kernel_id,
        coalesce(excluded.reason, 'contaminated') AS reason
    FROM picked_kernels
    LEFT JOIN excluded ON excluded.kernel_id = picked_kernels.kernel_id
    LEFT JOIN near_copies ON near_copies.kernel_id = picked_kernels.kernel_id
    WHERE excluded.kernel_id IS NOT NULL OR near_copies.kernel_id IS NOT NULL
),
held AS (
    SELECT row_index, task_id, unnest(kernel_ids) AS kernel_id
    FROM picked
)
SELECT row_index, max(reason) AS reason
FROM (
    SELECT held.row_index, bad.reason
    FROM held
    INNER JOIN bad ON bad.kernel_id = held.kernel_id
    UNION ALL
    SELECT held.row_index, unfit.reason
    FROM held
    INNER JOIN unfit
        ON
            unfit.kernel_id = held.kernel_id
            AND unfit.task_id = held.task_id
)
GROUP BY row_index
ORDER BY row_index
