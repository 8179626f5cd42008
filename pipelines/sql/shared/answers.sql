-- One row per kernel, task and policy that wrote it: kept, or the reason why it is left out.
-- Kernels of a task are put in an order drawn by a hash. One is a near-duplicate when at least half
-- of the bands of its signature stand in kernels of the task before it; then at most $per_policy of
-- a task and policy are kept. No filter on speed (CUDA-L1, stage 1).
-- With $said an attempt counts only where its author's analysis and design stand beside the kernel:
-- neither is about exemplars, which the question does not show, and nothing in them reads as a
-- heading or a code block, so that the answer keeps its form.
-- `successes` (task_id, kernel_id, device_kind) is registered.
-- Grows at UNNEST: a kernel has 16 bands.
WITH trimmed AS (
    SELECT
        task_id, kernel_id, policy_id, generation_id, exemplar_kernel_ids,
        regexp_replace(analysis, '^\s+|\s+$', '', 'g') AS analysis,
        regexp_replace(design, '^\s+|\s+$', '', 'g') AS design
    FROM generations
    WHERE kernel_id IS NOT NULL
),
attempts AS (
    SELECT
        *,
        coalesce(
            analysis <> '' AND design <> ''
            AND coalesce(len(exemplar_kernel_ids), 0) = 0
            AND NOT regexp_matches(
                concat(analysis, chr(10), design), '(?m)```|~~~|^[ \t>]*#'
            ),
            false
        ) AS has_words
    FROM trimmed
),
authors AS (
    SELECT
        task_id, kernel_id, policy_id,
        min_by({'analysis': analysis, 'design': design}, generation_id)
            FILTER (WHERE has_words AND $said) AS words
    FROM attempts
    GROUP BY task_id, kernel_id, policy_id
),
placed AS (
    SELECT
        successes.task_id, successes.kernel_id, successes.device_kind, authors.policy_id,
        authors.words,
        NOT $said OR authors.words IS NOT NULL AS counts,
        md5_number_lower(concat_ws(':', $seed, 'answer', successes.task_id, successes.kernel_id))
            AS place
    FROM successes
    INNER JOIN authors
        ON authors.task_id = successes.task_id AND authors.kernel_id = successes.kernel_id
    INNER JOIN policies ON policies.policy_id = authors.policy_id
    WHERE ($policy IS NULL OR $policy IN (policies.policy_id, policies."name"))
        AND ($round IS NULL OR policies.round = $round)
),
bands AS (
    SELECT DISTINCT
        placed.task_id, placed.kernel_id, placed.place,
        len(kernel_features.minhash_bands) AS bands,
        unnest(kernel_features.minhash_bands) AS band
    FROM placed
    INNER JOIN kernel_features ON kernel_features.kernel_id = placed.kernel_id
    WHERE placed.counts
),
firsts AS (
    SELECT
        task_id, kernel_id, bands, place,
        min(place) OVER (PARTITION BY task_id, band) AS first_place
    FROM bands
),
near_duplicates AS (
    SELECT DISTINCT task_id, kernel_id
    FROM firsts
    WHERE first_place < place
    GROUP BY task_id, kernel_id, bands
    HAVING 2 * count(*) >= bands
),
ranked AS (
    SELECT
        placed.*,
        near_duplicates.kernel_id IS NOT NULL AS near_duplicate,
        row_number() OVER (
            PARTITION BY
                placed.task_id, placed.policy_id, placed.counts,
                near_duplicates.kernel_id IS NOT NULL
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
    words AS _words,
    CASE
        WHEN NOT counts THEN 'no analysis and design of its own'
        WHEN near_duplicate THEN 'near-duplicate'
        WHEN turn > $per_policy THEN 'more than asked for'
    END AS _dropped
FROM ranked
ORDER BY
    turn, md5_number_lower(concat_ws(':', $seed, 'task', task_id)), task_id, policy_id, kernel_id
