-- What detectors saw in it, and what was decided.
--
-- key columns: class, standing, line, quote
SELECT
    class,
    detector || ' ' || detector_version AS detector,
    line,
    quote,
    coalesce(decision, 'open') AS standing,
    why
FROM finding_standings
WHERE kernel_id = $kernel_id
ORDER BY ALL
