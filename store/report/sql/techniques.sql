-- Typical speedup per technique
-- One row per technique seen in the code of correct kernels, n pairs of kernel and task. An
-- association and no effect: kernels that use a technique differ in more than that. The interval is
-- the exact 95 % one of the median; charts show techniques of at least 3 pairs.
-- Empty: No timed kernel shows a technique yet: evaluators run.
SELECT
    device, baseline, technique, p50, p50_low, p50_high, n, kernels, tasks, geomean, share_faster
FROM techniques
QUALIFY row_number() OVER (PARTITION BY device, baseline ORDER BY n DESC, technique) <= 24
ORDER BY baseline <> 'eager', device, baseline, p50 DESC, technique
