-- One row per row of timings, with its clock.
-- Early judges recorded no clock, so this view derives it. On a GPU, samples taken after a cache
-- flush time the device's own work (clock gpu), and samples without a flush time calls in a row
-- (throughput). On a processor, samples taken after a flush time calls in a row; the clock of the
-- others is unknown. A processor has no clock gpu: the clock of a row that states it is unknown.
-- impossible: the first rule of measurements that the row breaks; NULL for nearly all rows. No judge
-- writes others; they arrive by append, import or pull, and `store check` reports them. noisy: the
-- session failed its noise control, or the row is impossible.
SELECT
    timings.* EXCLUDE (clock) REPLACE (
        timings.noisy OR timings.impossible IS NOT NULL AS noisy
    ),
    CASE
        WHEN timings.clock = 'gpu' AND devices.kind = 'cpu' THEN NULL
        WHEN timings.clock IS NOT NULL THEN timings.clock
        WHEN devices.kind = 'cuda' AND timings.cache = 'cold' THEN 'gpu'
        WHEN devices.kind = 'cuda' OR timings.cache = 'cold' THEN 'throughput'
    END AS clock
FROM (
    SELECT
        *,
        CASE
            WHEN inner_loops < 1 THEN 'a sample is of at least one call'
            WHEN overhead_ms < 0 OR resolution_ms < 0
                THEN 'overhead_ms and resolution_ms are not negative'
            -- The first condition, which is the quickest, is false for nearly all rows.
            WHEN
                blocks <> range(len(blocks))::INTEGER[]
                AND (list_min(blocks) < 0 OR list_unique(blocks) < len(blocks))
                THEN 'blocks are not negative, and each occurs once'
            WHEN len(positions) <> len(blocks) OR list_min(positions) < 0
                THEN 'every sample has its position, which is not negative'
            WHEN len(control_ratios) <> len(blocks) OR list_min(control_ratios) <= 0
                THEN 'every sample has its control ratio, which is positive'
        END AS impossible
    FROM timings
) AS timings
LEFT JOIN devices ON devices.device_id = timings.device_id
