-- One row per finding with the decision that counts; decision is NULL while the finding is undecided.
-- Decisions are local. This lake's latest decision counts, whatever was pulled. Until this lake has
-- decided, a pulled confirmation counts and a pulled dismissal does not: rows from other lakes can
-- add suspicion but cannot release a kernel. origin is the repository that the decision was pulled
-- from, NULL for a decision of this lake. A pulled finding that says the same as one of this lake is
-- not listed, and decisions on it are decisions on that one.
--
-- key columns: kernel_id, class, detector, line, decision, quote
-- confidence: confidence of the finding, between 0 and 1; NULL if the detector states none
-- finding_id: finding (table findings)
-- quote: text that supports the finding; NULL if none does
-- found_at: when the finding was made
-- decision: confirmed or dismissed; NULL while the finding is undecided
-- decided_by: who decided
-- decided_at: when it was decided
-- origin: repository that the decision was pulled from; NULL for one of this lake
WITH twins AS (
    SELECT pulled.finding_id AS pulled_id, own.finding_id
    FROM findings AS pulled
    INNER JOIN findings AS own
        ON
            own.kernel_id = pulled.kernel_id
            AND own.detector = pulled.detector
            AND own.detector_version = pulled.detector_version
            AND own.class = pulled.class
            AND own.line IS NOT DISTINCT FROM pulled.line
            AND own.quote IS NOT DISTINCT FROM pulled.quote
            AND own.confidence IS NOT DISTINCT FROM pulled.confidence
    WHERE pulled.origin IS NOT NULL AND own.origin IS NULL
),
latest AS (
    SELECT
        coalesce(twins.finding_id, standings.finding_id) AS finding_id,
        standings.decision, standings.author, standings.why, standings.created_at, standings.origin
    FROM standings
    LEFT JOIN twins ON twins.pulled_id = standings.finding_id
    WHERE standings.origin IS NULL OR standings.decision = 'confirmed'
    QUALIFY row_number() OVER (
        PARTITION BY coalesce(twins.finding_id, standings.finding_id)
        ORDER BY {
            'own': standings.origin IS NULL, 'created_at': standings.created_at,
            'standing_id': standings.standing_id
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
ANTI JOIN twins ON twins.pulled_id = findings.finding_id
LEFT JOIN latest ON latest.finding_id = findings.finding_id
