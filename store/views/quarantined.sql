-- One row per quarantined kernel: no dataset may contain it, and no ranking shows it.
-- A finding on it is confirmed, or it has the same code tokens as such a kernel (code_signatures)
-- and is not cleared. since is the time of the confirmation, NULL for a copy.
--
-- since: when the first finding was confirmed
WITH confirmed AS MATERIALIZED (
    SELECT kernel_id, min(decided_at) AS since
    FROM finding_standings
    WHERE decision = 'confirmed'
    GROUP BY kernel_id
),
cheats AS (
    SELECT DISTINCT code_signatures.signature
    FROM code_signatures
    INNER JOIN confirmed ON confirmed.kernel_id = code_signatures.kernel_id
)
SELECT kernel_id, since
FROM confirmed
UNION ALL
SELECT DISTINCT code_signatures.kernel_id, CAST(NULL AS TIMESTAMPTZ) AS since
FROM code_signatures
INNER JOIN cheats ON cheats.signature = code_signatures.signature
ANTI JOIN confirmed ON confirmed.kernel_id = code_signatures.kernel_id
ANTI JOIN cleared ON cleared.kernel_id = code_signatures.kernel_id
