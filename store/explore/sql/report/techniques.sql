-- Typical speedup per technique
-- One row per technique in the code of correct kernels; n counts pairs of kernel and task. This is
-- an association, not an effect: kernels that use a technique differ in other ways too. The
-- interval is the exact 95 % interval of the median. Charts show techniques with at least 3 pairs.
-- Empty: No timed kernel shows a technique yet: evaluators run.
SELECT
    device, baseline, technique, p50, p50_low, p50_high, n, kernels, tasks, geomean, share_faster
FROM techniques
QUALIFY row_number() OVER (PARTITION BY device, baseline ORDER BY n DESC, technique) <= 24
ORDER BY baseline <> 'eager', device, baseline, p50 DESC, technique
