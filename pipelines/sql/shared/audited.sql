-- Kernels that the newest audit of this lake has read, or a later one with the same detectors.
-- `evaluators audit` and the judge search the text of a kernel and write it into scans. The
-- configuration of their run names the detectors with their versions, and says whether these were all
-- detectors there are (every_detector). Audits of pulled lakes do not count.
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
)
SELECT DISTINCT kernel_id
FROM scans
WHERE run_id IN (
    SELECT audits.run_id
    FROM audits
    CROSS JOIN newest
    WHERE list_has_all(audits.detectors, newest.detectors)
)
