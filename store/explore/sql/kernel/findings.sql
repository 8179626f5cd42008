-- Findings
-- What detectors saw in the code, and what was decided. A confidence below 50 % is a tag that
-- honest kernels carry too.
SELECT
    class, line, quote, confidence, coalesce(decision, 'open') AS standing, why, decided_by,
    detector || ' ' || detector_version AS detector, finding_id
FROM finding_standings
WHERE kernel_id = $kernel
ORDER BY coalesce(confidence, 1) DESC, line, class, finding_id
