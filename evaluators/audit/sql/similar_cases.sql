-- One row per stored case near a kernel: a decided finding on another kernel, at most three.
-- Near is by shared bands of the near-duplicate signature, which most kernels of other tasks share
-- none of, then by the share of words (names and numbers) that the two texts have in common.
WITH decided AS (
    SELECT *
    FROM finding_standings
    WHERE decision IS NOT NULL AND kernel_id <> $kernel_id
    QUALIFY row_number() OVER (
        PARTITION BY kernel_id ORDER BY decision, decided_at DESC, finding_id
    ) = 1
),
texts AS (
    SELECT
        kernels.kernel_id, kernels.code, features.minhash_bands,
        list_distinct(regexp_extract_all(kernels.code, '\w+')) AS words
    FROM kernels
    LEFT JOIN features ON features.kernel_id = kernels.kernel_id
    WHERE kernels.kernel_id = $kernel_id OR kernels.kernel_id IN (SELECT kernel_id FROM decided)
)
SELECT decided.finding_id, decided.class, decided.decision, decided.why, other.code
FROM decided
INNER JOIN texts AS other ON other.kernel_id = decided.kernel_id
INNER JOIN texts AS own ON own.kernel_id = $kernel_id
ORDER BY
    coalesce(len(list_intersect(own.minhash_bands, other.minhash_bands)), 0) DESC,
    len(list_intersect(own.words, other.words))
    / len(list_distinct(list_concat(own.words, other.words))) DESC,
    decided.finding_id
LIMIT 3
