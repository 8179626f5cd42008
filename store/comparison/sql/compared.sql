-- The pairs of one setting, the largest differences first.
FROM _pairs
WHERE
    device IS NOT DISTINCT FROM $device
    AND baseline = $baseline
    AND clock = $clock
    AND "precision" = $precision
    AND threads IS NOT DISTINCT FROM $threads
