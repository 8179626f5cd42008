-- One row per finding with its latest standing; decision is NULL while nobody has decided.
WITH latest AS (
    SELECT finding_id, decision, author, why, created_at
    FROM standings
    QUALIFY row_number() OVER (
        PARTITION BY finding_id
        ORDER BY {'created_at': created_at, 'standing_id': standing_id} DESC
    ) = 1
)
SELECT
    findings.finding_id,
    findings.kernel_id,
    findings.class,
    findings.detector,
    findings.detector_version,
    findings.line,
    findings.quote,
    findings.confidence,
    findings.created_at AS found_at,
    latest.decision,
    latest.author AS decided_by,
    latest.why,
    latest.created_at AS decided_at
FROM findings
LEFT JOIN latest ON latest.finding_id = findings.finding_id
