-- One row per timing session, baseline and clock: the speedup in its samples, counted or not.
-- The two arms are those of session_arms. An arm that a session has twice by a clock counts for
-- nothing, since nothing tells which of the two is right.
-- Samples of the two arms are paired by block, so that drift of the device cancels out. speedup =
-- exp(median(ln(baseline / kernel))); with an even count this is the geometric mean of the middle
-- two ratios. The interval is a pair of order statistics (the r-th smallest and r-th largest
-- ratio), which is exact for the median of any distribution; r is the largest rank whose two
-- binomial tails hold 1.8 % or less. That is the judge's own level: it looks at a session up to four
-- times before it stops, and an interval of 98.2 % keeps 95 % over the four looks
-- (evaluators/timing/intervals.py). The formula for r is Cornish and Fisher's expansion of the
-- Binomial(n, 1/2) quantile; it equals the exact rank for every n up to 1,000,000. Below 7 pairs no
-- such rank exists: the interval is then the smallest and largest ratio and covers 1 - 2^(1-n),
-- which is less than that, so the session is disturbed. Sessions of one kernel differ by more than these
-- intervals say, because processes that do the same differ for as long as they run. spread is the
-- standard deviation of that difference, as a logarithm: the newest estimate for the device model,
-- clock and version of the evaluator (current_spreads), or else that of fallback_spreads. error is
-- the standard error of the logarithm of the speedup within the session. From the speedup, both
-- bounds are the root of the sum of squares of the rank interval's distance and of 1.96 spreads away,
-- as logarithms. Where the baseline is too short for the clock (unresolved), there is no figure; where
-- only the kernel is, its speedup is at least the figure.
WITH sessions AS (
    SELECT
        session_id, evaluation_id, kernel_id, task_id, workload_id, device_id, baseline, clock,
        confirmed, disturbed, unresolved, measured_at,
        list_median(arms.kernel_ms) AS kernel_ms,
        CASE WHEN NOT unresolved THEN list_median(arms.baseline_ms) END AS baseline_ms,
        arms.kernel_ms AS kernel_samples,
        CASE
            WHEN complete THEN arms.baseline_ms
            -- NULL where the baseline lacks the block.
            ELSE list_transform(
                kernel_blocks,
                lambda block: arms.baseline_ms[list_position(baseline_blocks, block)]
            )
        END AS baseline_samples
    FROM session_arms AS arms
),
paired AS (
    SELECT
        *,
        list_sort(
            list_transform(
                baseline_samples, lambda ms, i: CAST(ms AS DOUBLE) / kernel_samples[i]
            ),
            'ASC', 'NULLS LAST'
        ) AS ratios,
        list_count(baseline_samples) AS n
    FROM sessions
),
ranked AS (
    SELECT
        *,
        greatest(1, floor((n + 1) / 2 - 1.182809063 * sqrt(greatest(n, 1) - 0.766024854)))::BIGINT AS r,
        CASE
            WHEN NOT unresolved THEN sqrt(ratios[(n + 1) // 2] * ratios[n // 2 + 1])
        END AS speedup,
        ln(speedup / ratios[r]) AS below,
        ln(ratios[n + 1 - r] / speedup) AS above
    FROM paired
)
SELECT
    ranked.session_id, ranked.evaluation_id, ranked.kernel_id, ranked.task_id,
    ranked.workload_id, ranked.device_id, ranked.baseline, ranked.clock, ranked.n,
    ranked.kernel_ms, ranked.baseline_ms, ranked.speedup,
    coalesce(estimates.tau, fallbacks.tau) AS spread,
    (ranked.below + ranked.above) / (2 * 1.96) AS error,
    ranked.speedup * exp(-sqrt(ranked.below ** 2 + (1.96 * spread) ** 2)) AS speedup_low,
    ranked.speedup * exp(sqrt(ranked.above ** 2 + (1.96 * spread) ** 2)) AS speedup_high,
    ranked.confirmed,
    ranked.disturbed OR ranked.n < 7 AS disturbed,
    ranked.unresolved,
    ranked.measured_at
FROM ranked
INNER JOIN (
    SELECT devices.device_id, fallback_spreads.clock, fallback_spreads.tau
    FROM devices
    INNER JOIN fallback_spreads ON fallback_spreads.kind = devices.kind
) AS fallbacks
    ON fallbacks.device_id = ranked.device_id AND fallbacks.clock = ranked.clock
-- Without an estimate, DuckDB does not read the evaluations.
LEFT JOIN (
    SELECT
        evaluations.evaluation_id, evaluations.kernel_id, evaluations.task_id, devices.device_id,
        current_spreads.clock, current_spreads.tau
    FROM evaluations
    INNER JOIN current_spreads
        ON
            current_spreads.evaluator = evaluations.evaluator
            AND current_spreads.evaluator_version = evaluations.evaluator_version
    INNER JOIN devices ON devices."name" = current_spreads.device
) AS estimates
    ON
        estimates.evaluation_id = ranked.evaluation_id
        -- A filter on one of these ids reaches both scans.
        AND estimates.kernel_id = ranked.kernel_id
        AND estimates.task_id = ranked.task_id
        AND estimates.device_id = ranked.device_id
        AND estimates.clock = ranked.clock
QUALIFY count(*) OVER (
    PARTITION BY
        ranked.session_id, ranked.evaluation_id, ranked.kernel_id, ranked.task_id,
        ranked.baseline, ranked.clock
) = 1
