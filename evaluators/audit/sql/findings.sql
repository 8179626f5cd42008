-- One row per finding, of one kernel or of all: what still waits for a decision comes first.
-- Of a detector's undecided findings in a kernel, only those of its newest version are listed.
SELECT
    finding_id, kernel_id, class, confidence, line, quote,
    coalesce(finding_standings.decision, 'open') AS decision, decided_by, why,
    detector || '@' || detector_version AS detector
FROM finding_standings
WHERE $kernel_id IS NULL OR kernel_id = $kernel_id
QUALIFY
    finding_standings.decision IS NOT NULL
    OR finding_standings.detector_version = max(finding_standings.detector_version) OVER (
        PARTITION BY kernel_id, finding_standings.detector
    )
ORDER BY
    list_position(['open', 'confirmed', 'dismissed'], decision),
    confidence DESC NULLS FIRST, kernel_id, line, finding_id
