-- Kernels under suspicion
-- Confirmed ones are quarantined, which keeps them out of rankings and datasets. speedup is what a
-- hack would aim for. line and quote belong to the finding with the highest confidence. datasets
-- counts datasets that contain the kernel.
-- Empty: No kernel matches. `evaluators audit` searches the kernels.
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
    suspects.findings, suspects.speedup, surest.line, left(surest.quote, 120) AS quote,
    suspects.decided_by, suspects.why,
    array_to_string(suspects.detectors, ', ') AS detectors, suspects.datasets,
    count(*) OVER () AS total
FROM suspects
LEFT JOIN surest ON surest.kernel_id = suspects.kernel_id
WHERE true
    AND suspects.standing = $standing
    AND suspects.standing <> $except
    AND list_contains(suspects.classes, $class)
ORDER BY list_position(['confirmed', 'open', 'dismissed'], suspects.standing),
    suspects.speedup DESC NULLS LAST, suspects.kernel_id
