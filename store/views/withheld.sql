-- One row per kernel that no dataset may contain: quarantined, strongly suspected, rejected, or a copy.
-- suspected: an undecided finding with a confidence of 0.8 or more; a finding without a confidence
-- counts as certain. rejected: a verdict `rejected` on any device, by any evaluator version.
-- Dismissing lifts both: a suspicion once its finding is dismissed, a rejection once every finding
-- on the kernel is dismissed. Decisions pulled from another lake lift neither (finding_standings).
-- A copy has all bands of the signature of a kernel that is out for one of these reasons: the same
-- code tokens, whatever its comments, docstrings, whitespace, paths, entry point and build flags.
-- Fewer bands do not count, because an honest kernel can resemble a cheat. What lifts the reason
-- lifts it for copies. A copy comes back alone once every finding on it is dismissed.
WITH standing AS (
    SELECT
        kernel_id,
        bool_or(decision IS NOT DISTINCT FROM 'confirmed') AS confirmed,
        bool_or(decision IS NULL AND coalesce(confidence, 1) >= 0.8) AS suspected,
        bool_and(coalesce(decision = 'dismissed', coalesce(confidence, 1) < 0.5))
        AND bool_or(decision IS NOT DISTINCT FROM 'dismissed') AS cleared
    FROM finding_standings
    GROUP BY kernel_id
),
rejected AS (
    SELECT DISTINCT kernel_id
    FROM evaluations
    WHERE status = 'rejected'
),
known AS MATERIALIZED (
    SELECT
        coalesce(standing.kernel_id, rejected.kernel_id) AS kernel_id,
        CASE
            WHEN standing.confirmed THEN 'quarantined'
            WHEN rejected.kernel_id IS NOT NULL AND NOT coalesce(standing.cleared, false)
                THEN 'rejected'
            ELSE 'suspected'
        END AS reason
    FROM standing
    FULL JOIN rejected ON rejected.kernel_id = standing.kernel_id
    WHERE
        standing.confirmed
        OR standing.suspected
        OR (rejected.kernel_id IS NOT NULL AND NOT coalesce(standing.cleared, false))
),
-- Hashes, for a join by them takes half the time of one by the lists.
signatures AS (
    SELECT
        kernel_features.extractor_version, hash(kernel_features.minhash_bands) AS signature,
        min(known.reason) AS reason
    FROM kernel_features
    INNER JOIN known ON known.kernel_id = kernel_features.kernel_id
    WHERE len(kernel_features.minhash_bands) > 0
    GROUP BY kernel_features.extractor_version, hash(kernel_features.minhash_bands)
)
SELECT kernel_id, reason
FROM known
UNION ALL
SELECT kernel_features.kernel_id, 'copy of a ' || min(signatures.reason) || ' kernel' AS reason
FROM kernel_features
INNER JOIN signatures
    ON
        signatures.extractor_version = kernel_features.extractor_version
        AND signatures.signature = hash(kernel_features.minhash_bands)
ANTI JOIN known ON known.kernel_id = kernel_features.kernel_id
ANTI JOIN standing ON standing.kernel_id = kernel_features.kernel_id AND standing.cleared
GROUP BY kernel_features.kernel_id
