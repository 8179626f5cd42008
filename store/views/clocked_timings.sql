-- One row per row of timings, with its clock.
-- Early judges recorded no clock, so this view derives it. On a GPU, samples taken after a cache
-- flush time the device's own work (clock gpu), and samples without a flush time calls in a row
-- (throughput). On a processor, samples taken after a flush time calls in a row; the clock of the
-- others is unknown. A processor has no clock gpu: the clock of a row that states it is unknown.
SELECT
    timings.* EXCLUDE (clock),
    CASE
        WHEN timings.clock = 'gpu' AND devices.kind = 'cpu' THEN NULL
        WHEN timings.clock IS NOT NULL THEN timings.clock
        WHEN devices.kind = 'cuda' AND timings.cache = 'cold' THEN 'gpu'
        WHEN devices.kind = 'cuda' OR timings.cache = 'cold' THEN 'throughput'
    END AS clock
FROM timings
LEFT JOIN devices ON devices.device_id = timings.device_id
