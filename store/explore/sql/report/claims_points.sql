-- Claimed and measured speedups
-- One point per claim over eager of a correct kernel with a quiet session, with the measured
-- interval. Kernels that compute another function and trivial tasks have no point. Claim and
-- measurement agree on the diagonal. faster here and slower here mean that the claim is about
-- another GPU, where it may be true. A chart shows at most 800 claims.
-- Empty: No claimed kernel has a quiet timing session yet: store import cuda-l1, then evaluators run.
SELECT
    "source", gpu, device, claimed, measured, measured_low, measured_high,
    CASE
        WHEN holds THEN 'holds'
        WHEN exceeded THEN CASE WHEN same_gpu THEN 'exceeded' ELSE 'faster here' END
        ELSE CASE WHEN same_gpu THEN 'falls' ELSE 'slower here' END
    END AS outcome,
    count(*) OVER (PARTITION BY "source", gpu, device, outcome) AS n
FROM claims_vs_measured
WHERE measured IS NOT NULL AND baseline = 'eager'
QUALIFY row_number() OVER (PARTITION BY "source", gpu, device ORDER BY kernel_id, claim_id) <= 800
ORDER BY "source", gpu, device, outcome, claimed, measured, measured_low, measured_high
