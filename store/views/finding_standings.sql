-- One row per finding with the decision that counts; decision is NULL while the finding is undecided.
-- Decisions are local. This lake's latest decision counts, whatever was pulled. Until this lake has
-- decided, a pulled confirmation counts and a pulled dismissal does not: rows from other lakes can
-- add suspicion but cannot release a kernel. origin is the repository that the decision was pulled
-- from, NULL for a decision of this lake.
WITH latest AS (
    SELECT finding_id, decision, author, why, created_at, origin
    FROM standings
    WHERE origin IS NULL OR decision = 'confirmed'
    QUALIFY row_number() OVER (
        PARTITION BY finding_id
        ORDER BY {
            'own': origin IS NULL, 'created_at': created_at, 'standing_id': standing_id
        } DESC
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
    latest.created_at AS decided_at,
    latest.origin
FROM findings
LEFT JOIN latest ON latest.finding_id = findings.finding_id
