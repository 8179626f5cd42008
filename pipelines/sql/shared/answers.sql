-- One row per kernel, task and policy that wrote it: kept, or the reason why it is left out.
-- Kernels of a task are put in an order drawn by a hash. One is a near-duplicate when at least half
-- of the bands of its signature stand in kernels of the task before it; then at most $per_policy of
-- a task and policy are kept. No filter on speed (CUDA-L1, stage 1).
-- `successes` (task_id, kernel_id, device_kind) is registered.
WITH placed AS (
    SELECT
        successes.task_id, successes.kernel_id, successes.device_kind, authors.policy_id,
        md5_number_lower(concat_ws(':', $seed, 'answer', successes.task_id, successes.kernel_id))
            AS place
    FROM successes
    INNER JOIN (
        SELECT DISTINCT task_id, kernel_id, policy_id FROM generations
    ) AS authors
        ON authors.task_id = successes.task_id AND authors.kernel_id = successes.kernel_id
    INNER JOIN policies ON policies.policy_id = authors.policy_id
    WHERE ($policy IS NULL OR $policy IN (policies.policy_id, policies."name"))
        AND ($round IS NULL OR policies.round = $round)
),
bands AS (
    SELECT DISTINCT
        placed.task_id, placed.kernel_id, placed.place, kernel_features.extractor_version,
        len(kernel_features.minhash_bands) AS bands,
        unnest(kernel_features.minhash_bands) AS band
    FROM placed
    INNER JOIN kernel_features ON kernel_features.kernel_id = placed.kernel_id
),
firsts AS (
    SELECT
        task_id, kernel_id, extractor_version, bands, place,
        min(place) OVER (PARTITION BY task_id, extractor_version, band) AS first_place
    FROM bands
),
near_duplicates AS (
    SELECT DISTINCT task_id, kernel_id
    FROM firsts
    WHERE first_place < place
    GROUP BY task_id, kernel_id, extractor_version, bands
    HAVING 2 * count(*) >= bands
),
ranked AS (
    SELECT
        placed.*,
        near_duplicates.kernel_id IS NOT NULL AS near_duplicate,
        row_number() OVER (
            PARTITION BY
                placed.task_id, placed.policy_id, near_duplicates.kernel_id IS NOT NULL
            ORDER BY placed.place, placed.kernel_id
        ) AS turn
    FROM placed
    LEFT JOIN near_duplicates
        ON
            near_duplicates.task_id = placed.task_id
            AND near_duplicates.kernel_id = placed.kernel_id
)
SELECT
    task_id,
    [kernel_id] AS kernel_ids,
    kernel_id,
    policy_id,
    device_kind AS _device_kind,
    CASE
        WHEN near_duplicate THEN 'near-duplicate'
        WHEN turn > $per_policy THEN 'more than asked for'
    END AS _dropped
FROM ranked
ORDER BY
    turn, md5_number_lower(concat_ws(':', $seed, 'task', task_id)), task_id, policy_id, kernel_id
