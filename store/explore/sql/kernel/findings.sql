-- Findings
-- What detectors saw in the code, with the line, and what was decided. A confidence below 50 % is a
-- tag that honest kernels carry too.
SELECT
    findings.class, findings.line,
    coalesce(
        findings.quote, nullif(trim(string_split(kernels.code, chr(10))[findings.line]), '')
    ) AS quote,
    findings.confidence, coalesce(findings.decision, 'open') AS standing,
    findings.why, findings.decided_by,
    findings.detector || ' ' || findings.detector_version AS detector, findings.finding_id
FROM finding_standings AS findings
INNER JOIN kernels ON kernels.kernel_id = findings.kernel_id
WHERE findings.kernel_id = $kernel
ORDER BY coalesce(findings.confidence, 1) DESC, findings.line, findings.class,
    findings.finding_id
