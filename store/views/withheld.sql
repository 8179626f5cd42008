-- One row per kernel that no dataset may hold: quarantined, surely suspected, or rejected.
-- suspected: a finding of confidence 0.8 or more that nobody has decided on; a finding without a
-- confidence counts as sure. rejected: a verdict `rejected` on any device, of any evaluator version.
-- A person lifts either by dismissing: a suspicion with the finding, a rejection with every finding
-- on the kernel. Decisions that were pulled from another lake lift neither (view finding_standings).
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
