-- What detectors saw in it, and what was decided.
SELECT
    findings.class,
    findings.detector || ' ' || findings.detector_version AS detector,
    findings.line,
    findings.quote,
    coalesce(arg_max(standings.decision, (standings.created_at, standing_id)), 'open') AS standing,
    arg_max(standings.why, (standings.created_at, standing_id)) AS why
FROM findings
LEFT JOIN standings USING (finding_id)
WHERE kernel_id = $kernel_id
GROUP BY ALL
ORDER BY ALL
