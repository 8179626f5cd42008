-- Case studies of CUDA-L1
-- The speedup in the paper's text (paper), the one that the release claims for each GPU, and the
-- one that quiet sessions of this lake measured. If the two cannot be compared, ours says why.
-- Empty: The CUDA-L1 release is not in this lake: store import cuda-l1 DIR.
SELECT
    task, measured, measured_low, measured_high, claimed, paper, gpu, case_study, device,
    n AS samples, ours, kernel_id
FROM case_studies
ORDER BY task, gpu, device
LIMIT 80
