-- One row per timing session, baseline and clock: how many times faster the kernel ran.
-- Samples of the two arms are paired by block, so that drift of the device cancels out. speedup =
-- exp(median(ln(baseline / kernel))); with an even count this is the geometric mean of the middle
-- two ratios. The interval is a pair of order statistics (the r-th smallest and r-th largest
-- ratio), which is exact for the median of any distribution; r is the largest rank whose two
-- binomial tails hold 1.8 % or less. That is the judge's own level: it looks at a session up to four times before it stops, and an
-- interval of 98.2 % keeps 95 % over the four looks (evaluators/timing/intervals.py).
-- The formula for r is Cornish and Fisher's expansion of the
-- Binomial(n, 1/2) quantile; it equals the exact rank for every n up to 1,000,000. Below 7 pairs no
-- such rank exists: the interval is then the smallest and largest ratio and covers 1 - 2^(1-n),
-- which is less than that. Kernel and baseline run in two processes, and two identical processes
-- also differ. If a session has a control (eager in two processes), both bounds move outward by the
-- far end of the control's interval, because more blocks do not average out a difference that lasts
-- for a whole session.
WITH sessions AS (
    SELECT
        kernel.session_id, kernel.evaluation_id, kernel.kernel_id, kernel.task_id,
        baseline.arm AS baseline, kernel.clock,
        kernel.noisy OR baseline.noisy AS noisy,
        kernel.created_at AS measured_at,
        list_median(kernel.samples_ms) AS kernel_ms,
        list_median(baseline.samples_ms) AS baseline_ms,
        kernel.samples_ms AS kernel_samples,
        list_sort(kernel.control_ratios) AS control,
        CASE
            WHEN kernel.blocks = baseline.blocks THEN baseline.samples_ms
            -- NULL where the baseline lacks the block.
            ELSE list_transform(
                kernel.blocks,
                lambda block: baseline.samples_ms[list_position(baseline.blocks, block)]
            )
        END AS baseline_samples
    FROM clocked_timings AS kernel
    INNER JOIN clocked_timings AS baseline
        ON
            baseline.session_id = kernel.session_id
            AND baseline.clock = kernel.clock
            -- True of any session; stated so that a filter on either id reaches both scans.
            AND baseline.kernel_id = kernel.kernel_id
            AND baseline.task_id = kernel.task_id
    WHERE
        kernel.arm = 'kernel'
        AND baseline.arm <> 'kernel'
        AND (
            kernel.blocks = baseline.blocks OR list_has_any(kernel.blocks, baseline.blocks)
        )
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
        coalesce(
            greatest(CAST(control[m + 1 - q] AS DOUBLE), 1 / CAST(control[q] AS DOUBLE)), 1
        ) AS apart
    FROM paired
),
failures AS (
    -- A failure counts for the precision of its verdict, and a rejected cheat for all of them.
    SELECT
        kernel_id, task_id, workload_id, device_id,
        list("precision") AS precisions,
        bool_or(status = 'rejected') AS rejected
    FROM verdicts
    WHERE NOT correct
    GROUP BY kernel_id, task_id, workload_id, device_id
)
SELECT
    ranked.session_id,
    ranked.evaluation_id,
    evaluations.task_id,
    evaluations.workload_id,
    evaluations.kernel_id,
    evaluations.device_id,
    verdicts.device,
    evaluations.evaluator,
    evaluations.evaluator_version,
    evaluations."precision",
    ranked.baseline,
    ranked.clock,
    ranked.n,
    ranked.kernel_ms,
    ranked.baseline_ms,
    sqrt(ranked.ratios[(ranked.n + 1) // 2] * ranked.ratios[ranked.n // 2 + 1]) AS speedup,
    ranked.ratios[ranked.r] / ranked.apart AS speedup_low,
    ranked.ratios[ranked.n + 1 - ranked.r] * ranked.apart AS speedup_high,
    verdicts.status,
    -- One evaluator that finds the kernel wrong is enough, be it another one than the session's.
    NOT coalesce(
        failures.rejected OR list_contains(failures.precisions, evaluations."precision"), false
    ) AS correct,
    ranked.noisy,
    ranked.measured_at
FROM ranked
INNER JOIN counted_evaluations AS evaluations
    ON
        evaluations.evaluation_id = ranked.evaluation_id
        AND evaluations.kernel_id = ranked.kernel_id
        AND evaluations.task_id = ranked.task_id
-- Equality of the version leaves out sessions of superseded versions of the evaluator.
INNER JOIN verdicts
    ON
        verdicts.kernel_id = evaluations.kernel_id
        AND verdicts.task_id = evaluations.task_id
        AND verdicts.workload_id = evaluations.workload_id
        AND verdicts.device_id = evaluations.device_id
        AND verdicts.evaluator = evaluations.evaluator
        AND verdicts."precision" = evaluations."precision"
        AND verdicts.evaluator_version = evaluations.evaluator_version
LEFT JOIN failures
    ON
        failures.kernel_id = evaluations.kernel_id
        AND failures.task_id = evaluations.task_id
        AND failures.workload_id = evaluations.workload_id
        AND failures.device_id = evaluations.device_id
WHERE evaluations.status <> 'evaluator_error'
