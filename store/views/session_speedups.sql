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
-- which is less than that, so the session is disturbed. Kernel and baseline run in two processes, and
-- two identical processes also differ. If a session has a control (eager in two processes), both
-- bounds move outward by the far end of the control's interval, because more blocks do not average
-- out a difference that lasts for a whole session. Where the baseline is too short for the clock
-- (unresolved), there is no figure; where only the kernel is, its speedup is at least the figure.
WITH sessions AS (
    SELECT
        session_id, evaluation_id, kernel_id, task_id, workload_id, device_id, baseline, clock,
        confirmed, disturbed, unresolved, measured_at,
        list_median(arms.kernel_ms) AS kernel_ms,
        list_median(arms.baseline_ms) AS baseline_ms,
        arms.kernel_ms AS kernel_samples,
        list_sort(control_ratios) AS control,
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
        len(control) AS m,
        greatest(1, floor((m + 1) / 2 - 1.182809063 * sqrt(greatest(m, 1) - 0.766024854)))::BIGINT AS q,
        -- At least 1, as the control is sorted. A ratio that is not positive widens nothing, and the
        -- session is disturbed (clocked_timings).
        CASE
            WHEN control[1] > 0
                THEN greatest(CAST(control[m + 1 - q] AS DOUBLE), 1 / CAST(control[q] AS DOUBLE))
            ELSE 1
        END AS apart
    FROM paired
)
SELECT
    session_id, evaluation_id, kernel_id, task_id, workload_id, device_id, baseline, clock, n,
    kernel_ms, baseline_ms,
    CASE
        WHEN NOT unresolved THEN sqrt(ratios[(n + 1) // 2] * ratios[n // 2 + 1])
    END AS speedup,
    CASE WHEN NOT unresolved THEN ratios[r] / apart END AS speedup_low,
    CASE WHEN NOT unresolved THEN ratios[n + 1 - r] * apart END AS speedup_high,
    confirmed,
    disturbed OR n < 7 AS disturbed,
    unresolved,
    measured_at
FROM ranked
QUALIFY count(*) OVER (
    PARTITION BY session_id, evaluation_id, kernel_id, task_id, baseline, clock
) = 1
