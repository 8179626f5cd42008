-- Success, speedup and new kernels
-- By step and device: the share of judged attempts with a correct kernel and Wilson's 95 %
-- interval; speedups over eager of correct, timed kernels (median, geometric mean, largest); and
-- the sums of attempts and of kernels that nobody had written before. Attempts without a verdict
-- are in no share. A chart has at most 200 points.
-- Empty: No attempt of the run has a step.
WITH steps AS (
    SELECT DISTINCT
        coalesce(device, 'not judged') AS device, step, attempts, pending, success, quarantined,
        with_kernel, new_kernels, timed, speedup_geomean, speedup_p50, speedup_max, faster
    FROM run_curves
    WHERE run_id = $run AND step IS NOT NULL
),
placed AS (
    SELECT
        *,
        min(step) OVER ()
        + (step - min(step) OVER ()) // ((max(step) OVER () - min(step) OVER ()) // 200 + 1)
        * ((max(step) OVER () - min(step) OVER ()) // 200 + 1) AS first_step
    FROM steps
),
summed AS (
    SELECT
        device, first_step AS step,
        sum(attempts)::BIGINT AS attempts, sum(pending)::BIGINT AS pending,
        sum(with_kernel)::BIGINT AS with_kernel,
        sum(success)::BIGINT AS success, sum(attempts - pending)::BIGINT AS judged,
        sum(quarantined)::BIGINT AS quarantined,
        sum(timed)::BIGINT AS timed, sum(faster)::BIGINT AS faster,
        exp(sum(ln(speedup_geomean) * timed) / sum(timed) FILTER (WHERE timed > 0)) AS geomean,
        median(speedup_p50) AS median_of_steps,
        max(speedup_max) AS max,
        sum(new_kernels)::BIGINT AS new_kernels
    FROM placed
    GROUP BY device, first_step
)
SELECT
    device, step, attempts, with_kernel, pending, success,
    success / nullif(judged, 0) AS share,
    (share + 1.9208 / judged - 1.96 * sqrt(share * (1 - share) / judged + 0.9604 / judged / judged))
    / (1 + 3.8416 / judged) AS share_low,
    (share + 1.9208 / judged + 1.96 * sqrt(share * (1 - share) / judged + 0.9604 / judged / judged))
    / (1 + 3.8416 / judged) AS share_high,
    quarantined, timed, faster, geomean, median_of_steps, max,
    sum(attempts) OVER so_far::BIGINT AS attempts_so_far,
    sum(new_kernels) OVER so_far::BIGINT AS new_kernels_so_far
FROM summed
WINDOW so_far AS (PARTITION BY device ORDER BY step)
ORDER BY device, step
