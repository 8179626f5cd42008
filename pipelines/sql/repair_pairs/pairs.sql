-- One row per pair: a wrong kernel, and the nearest correct one of its task that was written later.
-- Nearness is the share of equal bands of the stored MinHash over code tokens, as in the view repairs.
-- A tie goes to the earlier repair. Both were judged on the same kind of device. At most $per_task of
-- the wrong kernels of a task that have a repair are drawn, by a hash; only these are compared with
-- all later kernels.
-- `failures` (task_id, kernel_id, device_kind and the verdict) and `successes` (task_id, kernel_id,
-- device_kind) are registered.
-- Grows at UNNEST: each kernel has 16 bands.
WITH sides AS (
    SELECT task_id, kernel_id, device_kind, true AS is_wrong FROM failures
    UNION ALL
    SELECT task_id, kernel_id, device_kind, false FROM successes
),
banded AS MATERIALIZED (
    SELECT
        sides.*, authors.created_at,
        len(features.minhash_bands) AS bands, unnest(features.minhash_bands) AS band
    FROM sides
    INNER JOIN authors
        ON authors.kernel_id = sides.kernel_id AND authors.task_id = sides.task_id
    INNER JOIN features ON features.kernel_id = sides.kernel_id
),
last_repairs AS (
    SELECT task_id, device_kind, band, max(created_at) AS repaired_at
    FROM banded
    WHERE NOT is_wrong
    GROUP BY task_id, device_kind, band
),
repaired AS (
    SELECT DISTINCT wrong.task_id, wrong.kernel_id
    FROM banded AS wrong
    INNER JOIN last_repairs
        ON
            last_repairs.task_id = wrong.task_id
            AND last_repairs.device_kind = wrong.device_kind
            AND last_repairs.band = wrong.band
    WHERE wrong.is_wrong AND last_repairs.repaired_at > wrong.created_at
),
drawn AS (
    SELECT
        *,
        row_number() OVER (
            PARTITION BY task_id
            ORDER BY
                md5_number_lower(concat_ws(':', $seed, 'wrong', task_id, kernel_id)), kernel_id
        ) AS turn
    FROM repaired
    QUALIFY turn <= $per_task
),
pairs AS (
    SELECT
        drawn.task_id, drawn.kernel_id, drawn.turn, repair.kernel_id AS repair_kernel_id,
        repair.device_kind, any_value(repair.created_at) AS repaired_at,
        count(*) / any_value(wrong.bands) AS similarity
    FROM drawn
    INNER JOIN banded AS wrong
        ON wrong.task_id = drawn.task_id AND wrong.kernel_id = drawn.kernel_id
    INNER JOIN banded AS repair
        ON
            repair.task_id = wrong.task_id
            AND repair.device_kind = wrong.device_kind
            AND repair.band = wrong.band
    WHERE wrong.is_wrong AND NOT repair.is_wrong AND repair.created_at > wrong.created_at
    GROUP BY drawn.task_id, drawn.kernel_id, drawn.turn, repair.kernel_id, repair.device_kind
    QUALIFY row_number() OVER (
        PARTITION BY drawn.task_id, drawn.kernel_id
        ORDER BY similarity DESC, repaired_at, repair_kernel_id
    ) = 1
)
SELECT
    pairs.task_id,
    [pairs.kernel_id, pairs.repair_kernel_id] AS kernel_ids,
    pairs.kernel_id AS wrong_kernel_id,
    pairs.repair_kernel_id,
    pairs.similarity,
    failures.status,
    failures.reason,
    failures.device,
    'measured' AS evidence,
    evaluations.message AS _message,
    pairs.device_kind AS _device_kind
FROM pairs
INNER JOIN failures
    ON failures.task_id = pairs.task_id AND failures.kernel_id = pairs.kernel_id
LEFT JOIN evaluations
    ON
        evaluations.evaluation_id = failures.evaluation_id
        AND evaluations.kernel_id = failures.kernel_id
        AND evaluations.task_id = failures.task_id
ORDER BY
    pairs.turn, md5_number_lower(concat_ws(':', $seed, 'task', pairs.task_id)), pairs.task_id
