-- One row per row of timings, with its clock.
-- Rows of judges that had no column for it: on a GPU samples behind flushes are its own work (gpu),
-- and those without are calls in a row; on a processor samples behind flushes are calls in a row. Of
-- the others there the clock is not known.
SELECT
    timings.* EXCLUDE (clock),
    coalesce(
        timings.clock,
        CASE
            WHEN devices.kind = 'cuda' AND timings.cache = 'cold' THEN 'gpu'
            WHEN devices.kind = 'cuda' OR timings.cache = 'cold' THEN 'throughput'
        END
    ) AS clock
FROM timings
LEFT JOIN devices ON devices.device_id = timings.device_id
