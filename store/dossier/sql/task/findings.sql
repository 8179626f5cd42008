-- What detectors saw in kernels for the task, the surest first.
--
-- key columns: kernel, class, decision, line, quote
SELECT
    left(finding_standings.kernel_id, 12) AS kernel,
    finding_standings.class,
    finding_standings.line,
    left(finding_standings.quote, 70) AS quote,
    finding_standings.confidence,
    coalesce(finding_standings.decision, 'open') AS decision
FROM finding_standings
SEMI JOIN (
    SELECT kernel_id FROM generations WHERE task_id = $task_id
    UNION
    SELECT kernel_id FROM claims WHERE task_id = $task_id
) AS kernels ON kernels.kernel_id = finding_standings.kernel_id
WHERE coalesce(finding_standings.confidence, 1) >= 0.5
ORDER BY
    finding_standings.confidence DESC, finding_standings.kernel_id, finding_standings.class,
    finding_standings.line
LIMIT 12
