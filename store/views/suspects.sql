-- One row per kernel with findings: what was found, what was decided, and which datasets contain it.
-- A finding with a confidence below 0.5 is a tag that honest kernels carry too; it counts only once
-- somebody has decided on it. standing is confirmed if any finding is confirmed, else open if any
-- is undecided, else dismissed. decided_by and why come from the latest decision of that kind.
-- speedup is the kernel's best rankable speedup on a task whose function it computes
-- (nonequivalent), which is what a hack would aim for; device and measured_at are those of it.
--
-- key columns: kernel_id, classes, standing, quarantined, speedup
-- classes: kinds of cheating found, such as result_caching
-- detectors: names of the detectors that found them
-- findings: number of findings
-- standing: confirmed, open or dismissed
-- decided_by: who decided; NULL while the standing is open
-- why: reason given for the decision; NULL while the standing is open
-- datasets: number of datasets that contain the kernel
-- device: model name of the device where the kernel was fastest; NULL if it has no speedup
-- measured_at: when that session was made, the newest of several that pool
WITH grouped AS (
    SELECT
        kernel_id,
        list_sort(list(DISTINCT class)) AS classes,
        list_sort(list(DISTINCT detector)) AS detectors,
        count(*) AS findings,
        CASE
            WHEN bool_or(decision IS NOT DISTINCT FROM 'confirmed') THEN 'confirmed'
            WHEN bool_or(decision IS NULL) THEN 'open'
            ELSE 'dismissed'
        END AS standing,
        -- Confirmed decisions sort before dismissed ones, and each by time.
        max({
            'confirmed': decision = 'confirmed', 'decided_at': decided_at,
            'finding_id': finding_id, 'decided_by': decided_by, 'why': why
        }) FILTER (WHERE decision IS NOT NULL) AS deciding
    FROM finding_standings
    WHERE decision IS NOT NULL OR coalesce(confidence, 1) >= 0.5
    GROUP BY kernel_id
),
holding AS (
    SELECT kernel_id, count(DISTINCT dataset_id) AS datasets
    FROM (SELECT dataset_id, unnest(kernel_ids) AS kernel_id FROM dataset_rows)
    GROUP BY kernel_id
),
fastest AS (
    SELECT
        kernel_id,
        max({'speedup': speedup, 'measured_at': measured_at, 'device': device}) AS best
    FROM kernel_speedups
    WHERE equivalent
    GROUP BY kernel_id
)
SELECT
    grouped.kernel_id,
    grouped.classes,
    grouped.detectors,
    grouped.findings,
    grouped.standing,
    grouped.standing = 'confirmed' AS quarantined,
    CASE WHEN grouped.standing <> 'open' THEN grouped.deciding.decided_by END AS decided_by,
    CASE WHEN grouped.standing <> 'open' THEN grouped.deciding.why END AS why,
    coalesce(holding.datasets, 0) AS datasets,
    fastest.best.speedup AS speedup,
    fastest.best.device AS device,
    fastest.best.measured_at AS measured_at
FROM grouped
LEFT JOIN holding ON holding.kernel_id = grouped.kernel_id
LEFT JOIN fastest ON fastest.kernel_id = grouped.kernel_id
ORDER BY
    list_position(['confirmed', 'open', 'dismissed'], grouped.standing),
    fastest.best.speedup DESC NULLS LAST, grouped.kernel_id
