-- Measured in this lake
-- Released kernels that were judged and timed here, beside what is claimed for them. A claim holds
-- where the kernel is correct and the claim lies in the measured interval, or within 10 % of it; it is
-- exceeded where the kernel is faster than that. It falls where the kernel is wrong or slower on the
-- GPU that the claim is for: on another GPU a claim neither stands nor falls.
-- Empty: Nothing measured yet: no evaluator has judged a released kernel in this lake (evaluators list)
SELECT
    device,
    gpu AS claimed_on,
    count(*) AS judged,
    count(*) FILTER (WHERE status = 'correct') AS correct,
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
