-- What became of the speedups over eager that CUDA-L1 published for the H100, measured on H100s under
-- PyTorch's own flags: one row per outcome. A claim holds if it is inside the measured interval, or if
-- the measured speedup is within 10 % of it.
SELECT
    CASE
        WHEN weak THEN 'on a task that a trivial answer passes'
        WHEN falls AND status = 'correct' THEN 'falls: slower than claimed'
        WHEN falls THEN 'falls: not correct'
        WHEN NOT equivalent THEN 'computes another function than its task'
        WHEN exceeded THEN 'exceeded: faster than claimed'
        WHEN holds THEN 'holds'
        ELSE 'could not be measured'
    END AS outcome,
    count(*) AS claims
FROM claims_vs_measured
WHERE "source" = 'cuda-l1' AND baseline = 'eager' AND gpu = 'H100' AND device = 'H100'
GROUP BY ALL
ORDER BY claims DESC, outcome
