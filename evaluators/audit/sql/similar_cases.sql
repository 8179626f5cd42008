-- One row per stored case near a kernel: a decided finding on another kernel, at most three.
-- Near is by shared bands of the near-duplicate signature, then by shared techniques.
WITH signed AS (
    SELECT kernel_id, minhash_bands, techniques
    FROM kernel_features
    WHERE
        kernel_id = $kernel_id
        OR kernel_id IN (SELECT kernel_id FROM finding_standings WHERE decision IS NOT NULL)
    QUALIFY row_number() OVER (PARTITION BY kernel_id ORDER BY extractor_version DESC) = 1
),
near AS (
    SELECT
        other.kernel_id,
        len(list_intersect(own.minhash_bands, other.minhash_bands)) AS bands,
        len(list_intersect(own.techniques, other.techniques)) AS techniques
    FROM signed AS other
    LEFT JOIN signed AS own ON own.kernel_id = $kernel_id
    WHERE other.kernel_id <> $kernel_id
),
decided AS (
    SELECT *
    FROM finding_standings
    WHERE decision IS NOT NULL AND kernel_id <> $kernel_id
    QUALIFY row_number() OVER (
        PARTITION BY kernel_id ORDER BY decision, decided_at DESC, finding_id
    ) = 1
)
SELECT decided.finding_id, decided.class, decided.decision, decided.why, kernels.code
FROM decided
INNER JOIN kernels ON kernels.kernel_id = decided.kernel_id
LEFT JOIN near ON near.kernel_id = decided.kernel_id
ORDER BY
    coalesce(near.bands, 0) DESC, coalesce(near.techniques, 0) DESC, decided.finding_id
LIMIT 3
