-- Kernels with findings
-- Confirmed ones are quarantined, which keeps them out of rankings and datasets. speedup is what a
-- hack would aim for.
-- Empty: No kernel matches. `evaluators audit` searches the kernels.
SELECT
    kernel_id, standing, array_to_string(classes, ', ') AS classes, findings, speedup, datasets,
    array_to_string(detectors, ', ') AS detectors, decided_by, why
FROM suspects
WHERE true
    AND standing = $standing
    AND list_contains(classes, $class)
ORDER BY list_position(['open', 'confirmed', 'dismissed'], standing),
    speedup DESC NULLS LAST, kernel_id
