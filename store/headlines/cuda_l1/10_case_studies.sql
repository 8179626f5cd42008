-- Case studies, as claimed and as measured
-- What the paper's text gives (paper), what the released rows claim for each GPU, and what quiet
-- sessions of this lake say; where there are none, ours says why.
-- Empty: The release is not in this lake; run: store import cuda-l1 PATH
SELECT
    task, case_study, paper, gpu, claimed, device,
    round(measured, 2) AS measured,
    round(measured_low, 2) AS low,
    round(measured_high, 2) AS high,
    n, ours
FROM case_studies
ORDER BY task, gpu, device
