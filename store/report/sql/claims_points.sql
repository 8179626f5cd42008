-- Claimed and measured speedups
-- One point per claim over eager of a correct kernel with a quiet session, with the measured
-- interval. Claim and measurement agree on the diagonal. slower here means that the claim is about
-- another GPU, where it may be true. A chart shows at most 800 claims.
-- Empty: No claimed kernel has a quiet timing session yet.
WITH checked AS (
    SELECT *
    FROM claims_vs_measured
    -- One row per claim and name of device: of several cards one that finds fault, then one that
    -- has a quiet session.
    QUALIFY row_number() OVER (
        PARTITION BY claim_id, device ORDER BY status = 'correct', measured IS NULL, measured
    ) = 1
)
SELECT
    "source", gpu, device, claimed, measured, measured_low, measured_high,
    CASE
        WHEN holds THEN 'holds' WHEN exceeded THEN 'exceeded' WHEN same_gpu THEN 'falls'
        ELSE 'slower here'
    END AS outcome,
    count(*) OVER (PARTITION BY "source", gpu, device, outcome) AS n
FROM checked
WHERE measured IS NOT NULL AND baseline = 'eager'
QUALIFY row_number() OVER (PARTITION BY "source", gpu, device ORDER BY kernel_id, claim_id) <= 800
ORDER BY "source", gpu, device, outcome, claimed, measured, measured_low, measured_high
