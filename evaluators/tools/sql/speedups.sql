-- The speedups of the evaluation that decides; disturbed sessions do not rank. unresolved: the baseline
-- is too short for the clock, so that there is no figure.
SELECT
    device, threads, baseline, clock, round(speedup, 3) AS speedup, round(speedup_low, 3) AS speedup_low,
    round(speedup_high, 3) AS speedup_high, n AS samples, disturbed, unresolved
FROM speedups
WHERE evaluation_id = $evaluation_id AND kernel_id = $kernel_id
ORDER BY baseline, clock, speedup DESC
