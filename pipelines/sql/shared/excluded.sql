-- Kernels that no dataset of this purpose may contain, and why.
-- Those of the view withheld, those of `test_kernels`, and those that no newest audit of this lake has
-- read. `evaluators audit` and the judge search the text of a kernel and write it into scans. The
-- configuration of their run names the detectors with their versions, and says whether these were all
-- detectors there are (every_detector). A later audit with the same detectors counts as well as the
-- newest; audits of pulled lakes do not count.
WITH audits AS (
    SELECT
        run_id, started_at, coalesce(config ->> '$.every_detector', '') = 'true' AS is_whole,
        from_json(config ->> '$.detectors', '["VARCHAR"]') AS detectors
    FROM runs
    WHERE
        origin IS NULL
        AND kind IN ('audit', 'evaluation')
        AND (config ->> '$.detectors') IS NOT NULL
),
newest AS (
    SELECT detectors
    FROM audits
    WHERE is_whole
    ORDER BY started_at DESC, run_id DESC
    LIMIT 1
),
audited AS (
    SELECT kernel_id
    FROM scans
    WHERE run_id IN (
        SELECT audits.run_id
        FROM audits
        CROSS JOIN newest
        WHERE list_has_all(audits.detectors, newest.detectors)
    )
),
marked AS MATERIALIZED (
    SELECT kernel_id, reason
    FROM withheld
)
SELECT kernel_id, reason
FROM marked
UNION ALL
SELECT test_kernels.kernel_id, 'contaminated'
FROM test_kernels
ANTI JOIN marked ON marked.kernel_id = test_kernels.kernel_id
UNION ALL
SELECT kernels.kernel_id, 'not audited'
FROM kernels
ANTI JOIN audited ON audited.kernel_id = kernels.kernel_id
ANTI JOIN test_kernels ON test_kernels.kernel_id = kernels.kernel_id
ANTI JOIN marked ON marked.kernel_id = kernels.kernel_id
