-- One row per kernel that no dataset may contain: quarantined, strongly suspected, or rejected.
-- suspected: an undecided finding with a confidence of 0.8 or more; a finding without a confidence
-- counts as certain. rejected: a verdict `rejected` on any device, by any evaluator version.
-- Dismissing lifts both: a suspicion once its finding is dismissed, a rejection once every finding
-- on the kernel is dismissed. Decisions pulled from another lake lift neither (finding_standings).
WITH standing AS (
    SELECT
        kernel_id,
        bool_or(decision IS NOT DISTINCT FROM 'confirmed') AS confirmed,
        bool_or(decision IS NULL AND coalesce(confidence, 1) >= 0.8) AS suspected,
        bool_and(coalesce(decision = 'dismissed', coalesce(confidence, 1) < 0.5)) AS cleared,
        bool_or(decision IS NOT DISTINCT FROM 'dismissed') AS dismissed
    FROM finding_standings
    GROUP BY kernel_id
),
rejected AS (
    SELECT DISTINCT kernel_id
    FROM evaluations
    WHERE status = 'rejected'
)
SELECT
    coalesce(standing.kernel_id, rejected.kernel_id) AS kernel_id,
    CASE
        WHEN standing.confirmed THEN 'quarantined'
        WHEN rejected.kernel_id IS NOT NULL
            AND NOT coalesce(standing.dismissed AND standing.cleared, false) THEN 'rejected'
        ELSE 'suspected'
    END AS reason
FROM standing
FULL JOIN rejected ON rejected.kernel_id = standing.kernel_id
WHERE
    standing.confirmed
    OR standing.suspected
    OR (
        rejected.kernel_id IS NOT NULL
        AND NOT coalesce(standing.dismissed AND standing.cleared, false)
    )
