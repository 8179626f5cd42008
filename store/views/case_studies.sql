-- One row per case study of CUDA-L1, GPU with a published speedup, and device of this lake.
-- The paper discusses a diagonal product, a 3-D convolution and an LSTM. Two GRUs with the same
-- structure as the LSTM are listed as well. paper is the speedup that the paper's text states, NULL
-- where it states none. claimed is the speedup over eager in the released row. Measured speedups
-- come from quiet sessions only (claims_vs_measured). The column ours compares them with the claim,
-- or says why it cannot: no row for the kernel, a trivial task, a failing verdict, a kernel that
-- computes another function, or no quiet session. For a claim about another GPU it says faster here
-- or slower here, because the claim may be true there.
--
-- key columns: task, gpu, paper, claimed, device, measured, measured_low, measured_high, n
-- case_study: what the paper says about the kernel, in a few words
-- paper: speedup that the paper's text states (a ratio); NULL where it states none
-- ours: how the measurement compares with the claim, in words
WITH studies (task, case_study, paper) AS (
    VALUES
    ('level1/12', 'product with a diagonal matrix as a broadcast', 64.0::DOUBLE),
    ('level2/83', '3-D convolution whose answer is constant', 120.0),
    ('level3/35', 'LSTM: CUDA graphs come first', 3.42),
    ('level3/41', 'bidirectional GRU', NULL),
    ('level3/42', 'bidirectional GRU, hidden state', NULL)
)
SELECT
    studies.task,
    studies.case_study,
    studies.paper,
    claimed.gpu,
    claimed.speedup AS claimed,
    claimed.released,
    claimed.kernel_id,
    measured.device,
    measured.measured,
    measured.measured_low,
    measured.measured_high,
    measured.n,
    CASE
        WHEN NOT claimed.released THEN 'no code was released'
        WHEN measured.claim_id IS NULL THEN 'not judged in this lake'
        WHEN measured.weak THEN 'trivial task'
        WHEN measured.status <> 'correct' THEN measured.status
        WHEN NOT measured.equivalent THEN 'another function'
        WHEN measured.measured IS NULL THEN 'correct, no quiet session'
        WHEN measured.holds THEN 'holds'
        WHEN measured.exceeded AND measured.same_gpu THEN 'exceeded'
        WHEN measured.exceeded THEN 'faster here'
        WHEN measured.falls THEN 'falls'
        ELSE 'slower here'
    END AS ours
FROM claimed_speedups AS claimed
INNER JOIN studies ON studies.task = claimed.task
LEFT JOIN claims_vs_measured AS measured
    ON measured.claim_id = claimed.claim_id AND measured.baseline = 'eager'
WHERE
    claimed."source" = 'cuda-l1'
    AND claimed.suite = 'kernelbench'
    AND claimed.baseline = 'eager'
ORDER BY studies.task, claimed.gpu, measured.device
