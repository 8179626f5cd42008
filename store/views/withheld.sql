-- One row per kernel that no dataset may contain: quarantined, strongly suspected, rejected, or a copy.
-- suspected: an undecided finding with a confidence of 0.8 or more; a finding without a confidence
-- counts as certain. rejected: a verdict `rejected` on any device, by any evaluator version.
-- Dismissing lifts both: a suspicion once its finding is dismissed, a rejection once the kernel is
-- cleared. Decisions pulled from another lake lift neither (finding_standings).
-- A copy has the same code tokens as a kernel that is out for one of these reasons (code_signatures).
-- A kernel that is only similar stays, because an honest kernel can resemble a cheat. What lifts the
-- reason lifts it for copies. A copy comes back alone once it is cleared.
--
-- reason: quarantined, rejected, suspected, or the same of the kernel that it copies
WITH standing AS (
    SELECT
        kernel_id,
        bool_or(decision IS NOT DISTINCT FROM 'confirmed') AS confirmed,
        bool_or(decision IS NULL AND coalesce(confidence, 1) >= 0.8) AS suspected
    FROM finding_standings
    GROUP BY kernel_id
),
rejected AS (
    SELECT DISTINCT evaluations.kernel_id
    FROM standing_evaluations AS evaluations
    ANTI JOIN cleared ON cleared.kernel_id = evaluations.kernel_id
    WHERE evaluations.status = 'rejected'
),
known AS MATERIALIZED (
    SELECT
        coalesce(standing.kernel_id, rejected.kernel_id) AS kernel_id,
        CASE
            WHEN standing.confirmed THEN 'quarantined'
            WHEN rejected.kernel_id IS NOT NULL THEN 'rejected'
            ELSE 'suspected'
        END AS reason
    FROM standing
    FULL JOIN rejected ON rejected.kernel_id = standing.kernel_id
    WHERE standing.confirmed OR standing.suspected OR rejected.kernel_id IS NOT NULL
),
-- One scan for both sides.
signed AS MATERIALIZED (
    SELECT kernel_id, signature
    FROM code_signatures
),
copied AS (
    SELECT signed.signature, min(known.reason) AS reason
    FROM signed
    INNER JOIN known ON known.kernel_id = signed.kernel_id
    GROUP BY signed.signature
)
SELECT kernel_id, reason
FROM known
UNION ALL
SELECT signed.kernel_id, 'copy of a ' || min(copied.reason) || ' kernel' AS reason
FROM signed
INNER JOIN copied ON copied.signature = signed.signature
ANTI JOIN known ON known.kernel_id = signed.kernel_id
ANTI JOIN cleared ON cleared.kernel_id = signed.kernel_id
GROUP BY signed.kernel_id
