-- Kernels under suspicion
-- Confirmed kernels first, then open ones, by their measured speedup. line and quote belong to the
-- finding with the highest confidence. datasets counts datasets that contain the kernel.
-- Empty: No kernel is under suspicion: evaluators audit searches every kernel.
WITH surest AS (
    SELECT kernel_id, line, quote
    FROM finding_standings
    QUALIFY row_number() OVER (
        PARTITION BY kernel_id
        ORDER BY decision = 'confirmed' DESC NULLS LAST, confidence DESC, finding_id
    ) = 1
)
SELECT
    suspects.kernel_id, suspects.standing, array_to_string(suspects.classes, ', ') AS classes,
    suspects.speedup, surest.line, left(surest.quote, 120) AS quote, suspects.decided_by,
    left(suspects.why, 60) AS why, array_to_string(suspects.detectors, ', ') AS detectors,
    suspects.datasets,
    count(*) OVER () AS total
FROM suspects
LEFT JOIN surest ON surest.kernel_id = suspects.kernel_id
WHERE suspects.standing <> 'dismissed'
ORDER BY
    list_position(['confirmed', 'open'], suspects.standing),
    suspects.speedup DESC NULLS LAST, suspects.kernel_id
LIMIT 30
