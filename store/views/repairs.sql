-- One row per wrong kernel, task and device: the nearest correct kernel that was written later.
-- Nearness is the share of equal bands of the stored MinHash over code tokens (features), so a
-- kernel without a similar later one has no row. A tie goes to the earlier repair. Rejected kernels
-- are no wrong answers but cheats, and are left out, as are withheld, quarantined and nonequivalent
-- kernels among the repairs. Times and authors are those of the first attempt (authors).
-- Grows at UNNEST: each kernel has 16 bands.
--
-- key columns: task, device, status, kernel_id, repair_kernel_id, repair_policy, similarity
-- kernel_id: wrong kernel
-- status: outcome of the wrong kernel, such as incorrect or compile_error
-- policy: name of the author that wrote the wrong kernel first
-- written_at: when the wrong kernel was written first
-- repair_kernel_id: correct kernel
-- repair_policy: name of the author that wrote the correct kernel first
-- repaired_at: when the correct kernel was written first
-- similarity: share of the MinHash bands of the wrong kernel that the correct one has, 0 to 1
WITH answers AS (
    SELECT
        outcomes.kernel_id, outcomes.task_id, outcomes.device,
        bool_and(outcomes.correct) AS correct,
        min({'correct': outcomes.correct, 'status': outcomes.status, 'reason': outcomes.reason})
            AS worst,
        bool_or(outcomes.status = 'rejected') AS rejected
    FROM outcomes
    GROUP BY outcomes.kernel_id, outcomes.task_id, outcomes.device
),
banded AS (
    SELECT
        answers.*, authors.policy, authors.created_at,
        len(features.minhash_bands) AS bands, unnest(features.minhash_bands) AS band
    FROM answers
    INNER JOIN authors
        ON authors.kernel_id = answers.kernel_id AND authors.task_id = answers.task_id
    INNER JOIN features ON features.kernel_id = answers.kernel_id
),
repairing AS (
    SELECT banded.*
    FROM banded
    ANTI JOIN withheld ON withheld.kernel_id = banded.kernel_id
    ANTI JOIN quarantined ON quarantined.kernel_id = banded.kernel_id
    ANTI JOIN nonequivalent
        ON
            nonequivalent.kernel_id = banded.kernel_id
            AND nonequivalent.task_id = banded.task_id
    WHERE banded.correct
),
pairs AS (
    SELECT
        wrong.kernel_id, wrong.task_id, wrong.device, repair.kernel_id AS repair_kernel_id,
        any_value(wrong.worst) AS worst, any_value(wrong.policy) AS policy,
        any_value(wrong.created_at) AS written_at,
        any_value(repair.policy) AS repair_policy, any_value(repair.created_at) AS repaired_at,
        count(*) / any_value(wrong.bands) AS similarity
    FROM banded AS wrong
    INNER JOIN repairing AS repair
        ON
            repair.task_id = wrong.task_id
            AND repair.device = wrong.device
            AND repair.band = wrong.band
            AND repair.created_at > wrong.created_at
    WHERE NOT wrong.correct AND NOT wrong.rejected
    GROUP BY wrong.kernel_id, wrong.task_id, wrong.device, repair.kernel_id
    QUALIFY row_number() OVER (
        PARTITION BY wrong.kernel_id, wrong.task_id, wrong.device
        ORDER BY similarity DESC, repaired_at, repair_kernel_id
    ) = 1
)
SELECT
    pairs.task_id,
    task_names.task,
    pairs.device,
    pairs.kernel_id,
    pairs.worst.status AS status,
    pairs.worst.reason AS reason,
    pairs.policy,
    pairs.written_at,
    pairs.repair_kernel_id,
    pairs.repair_policy,
    pairs.repaired_at,
    pairs.similarity
FROM pairs
INNER JOIN task_names ON task_names.task_id = pairs.task_id
ORDER BY pairs.similarity DESC, pairs.task_id, pairs.device, pairs.kernel_id
