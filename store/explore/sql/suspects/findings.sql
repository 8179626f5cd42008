-- Findings to decide
-- The line that each finding points at, with the code around it. The surest come first.
SELECT
    findings.finding_id, findings.kernel_id, findings.class, findings.detector,
    findings.detector_version, findings.line,
    findings.quote, findings.confidence, coalesce(findings.decision, 'open') AS standing,
    findings.decided_by, findings.why,
    authors.policy, task_names.task, authors.task_id,
    list_slice(
        string_split(kernels.code, chr(10)), greatest(findings.line - 3, 1), findings.line + 3
    ) AS excerpt,
    greatest(findings.line - 3, 1) AS first_line
FROM finding_standings AS findings
INNER JOIN kernels ON kernels.kernel_id = findings.kernel_id
LEFT JOIN authors ON authors.kernel_id = findings.kernel_id
LEFT JOIN task_names ON task_names.task_id = authors.task_id
WHERE true
    AND coalesce(findings.decision, 'open') = $standing
    AND findings.class = $class
    AND coalesce(findings.confidence, 1) >= $confidence
ORDER BY coalesce(findings.confidence, 1) DESC, findings.class, findings.kernel_id,
    findings.line, findings.finding_id, authors.task_id
