-- Measured in this lake
-- Released kernels that were judged and timed here, compared with their claims. A claim holds if
-- the kernel is correct and the claimed speedup is inside the measured interval, or if the
-- measured speedup is within 10 % of the claim. It is exceeded if the kernel is faster than
-- that. It falls if the kernel is wrong or slower on the GPU that the claim is for; on another
-- GPU a claim neither holds nor falls. weak counts claims on trivial tasks, and another_function those of other
-- correct kernels that compute another function than the task. Neither kind holds, is exceeded or falls; timed and the speedups leave both out.
-- Empty: Nothing measured yet: no evaluator has judged a released kernel in this lake (evaluators
-- list)
SELECT
    device,
    gpu AS claimed_on,
    count(*) AS judged,
    count(*) FILTER (WHERE status = 'correct') AS correct,
    count(*) FILTER (WHERE weak) AS weak,
    count(*) FILTER (WHERE NOT weak AND status = 'correct' AND NOT equivalent) AS another_function,
    count(measured) AS timed,
    count(*) FILTER (WHERE "holds") AS claims_that_hold,
    count(*) FILTER (WHERE exceeded) AS exceeded,
    CASE WHEN bool_and(same_gpu) THEN count(*) FILTER (WHERE falls) END AS falls,
    round(median(claimed) FILTER (WHERE measured IS NOT NULL), 2) AS median_claimed,
    round(median(measured), 2) AS median_measured,
    round(exp(avg(ln(measured))), 2) AS geomean_measured,
    round(avg(measured), 2) AS mean_measured
FROM claims_vs_measured
WHERE source = 'cuda-l1' AND baseline = 'eager'
GROUP BY device, gpu
ORDER BY device, gpu
