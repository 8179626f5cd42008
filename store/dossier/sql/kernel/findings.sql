-- What detectors saw in it, and what was decided.
--
-- key columns: class, decision, line, quote
SELECT
    class,
    detector || ' ' || detector_version AS detector,
    line,
    quote,
    coalesce(finding_standings.decision, 'open') AS decision,
    why
FROM finding_standings
WHERE kernel_id = $kernel_id
ORDER BY ALL
