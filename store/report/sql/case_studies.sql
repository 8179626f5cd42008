-- Case studies of CUDA-L1
-- What the paper's text gives (paper), what the released rows claim for each GPU, and what quiet
-- sessions of this lake say; where there are none, ours says why.
-- Empty: The CUDA-L1 release is not in this lake: store import cuda-l1 DIR.
SELECT
    task, measured, measured_low, measured_high, claimed, paper, gpu, case_study, device,
    n AS samples, ours, kernel_id
FROM case_studies
ORDER BY task, gpu, device
LIMIT 80
