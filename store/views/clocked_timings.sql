-- One row per row of timings, with its clock and what speaks against it.
-- Early judges recorded no clock, so this view derives it. On a GPU, samples taken after a cache
-- flush time the device's own work (clock gpu), and samples without a flush time calls in a row
-- (throughput). On a processor, samples taken after a flush time calls in a row; the clock of the
-- others is unknown. A processor has no clock gpu: the clock of a row that states it is unknown.
-- impossible: the first rule of measurements that the row breaks; NULL for nearly all rows. No judge
-- writes others; they arrive by append, import or pull, and `store check` reports them. disturbed:
-- the session ranks nothing, or the row is impossible.
-- Judges up to version 8 wrote no confirmed, disturbed and unresolved. They wrote noisy also for the
-- higher one of two sessions that confirm a win, for wide sessions, and for those whose eager is too
-- short for the clock. Here, a noisy row of theirs is disturbed unless one of these explains it: a
-- flag of its evaluation does not, and neither does a control whose whole interval is beyond 5 %, or
-- a fifth of the blocks that is missing. They timed no second session of a surprising win where the
-- first was noisy, so such a win is confirmed by none and disturbed. A session by a further clock is
-- disturbed if the one by the clock that ranks is.
--
-- impossible: first rule of measurements that the row breaks; NULL for nearly all rows
-- clock: clock of the row, derived where the judge recorded none; NULL if it is unknown
WITH early AS (
    SELECT
        timings.session_id, timings.evaluation_id, timings.kernel_id, timings.task_id,
        timings.clock,
        timings.clock = CASE
            WHEN any_value(devices.kind) = 'cpu' THEN 'throughput'
            WHEN list_contains(any_value(evaluations.flags), 'timed_end_to_end') THEN 'latency'
            ELSE 'gpu'
        END AS ranks,
        list_contains(any_value(evaluations.flags), 'confirmed_win') AS is_confirmed,
        bool_or(
            list_has_any(
                evaluations.flags,
                [
                    'baseline_drift', 'contended', 'fewer_baselines', 'more_threads', 'not_frozen',
                    'precision_below_policy', 'shares_device', 'unconfirmed_win'
                ]
            )
            OR (
                contains(evaluations."precision", 'custom_required')
                AND NOT coalesce(evaluations.custom_kernel_share > 0, false)
            )
        ) AS is_flagged,
        bool_or(
            timings.arm = 'eager'
            AND list_min(timings.samples_ms) <= CAST(5 * timings.resolution_ms AS FLOAT)
            AND list_median(timings.samples_ms) <= CAST(5 * timings.resolution_ms AS FLOAT)
        ) AS is_short,
        list_sort(any_value(timings.control_ratios)) AS control,
        max(list_max(timings.blocks)) AS last_block,
        -- A win is surprising above 3 (evaluators/timing/surprising_wins.py).
        max(list_median(timings.samples_ms)) FILTER (WHERE timings.arm = 'eager')
        > 3 * max(list_median(timings.samples_ms)) FILTER (WHERE timings.arm = 'kernel')
            AS is_surprising
    FROM timings
    INNER JOIN devices ON devices.device_id = timings.device_id
    INNER JOIN evaluations
        ON
            evaluations.evaluation_id = timings.evaluation_id
            AND evaluations.kernel_id = timings.kernel_id
            AND evaluations.task_id = timings.task_id
    WHERE timings.noisy AND timings.disturbed IS NULL AND timings.clock IS NOT NULL
    GROUP BY
        timings.session_id, timings.evaluation_id, timings.kernel_id, timings.task_id,
        timings.clock
),
controls AS (
    SELECT
        *,
        len(control) AS m,
        -- The interval of the control, as in session_speedups.
        greatest(1, floor((m + 1) / 2 - 1.182809063 * sqrt(greatest(m, 1) - 0.766024854)))::BIGINT AS q,
        control[q] AS low,
        control[m + 1 - q] AS high
    FROM early
),
explained AS (
    SELECT
        *,
        CASE
            WHEN is_flagged OR m IS NULL OR m < 0.8 * (last_block + 1) THEN true
            WHEN m >= 7 AND (low > 1.05 OR high < 1 / 1.05) THEN true
            WHEN ranks AND is_surprising AND NOT is_confirmed THEN true
            WHEN m < 7 OR high > 1.1 * 1.1 * low OR is_short OR is_confirmed THEN false
            -- By a further clock, NULL: it is noisy because the clock that ranks is.
            WHEN ranks THEN true
        END AS disturbed
    FROM controls
),
settled AS (
    SELECT
        *,
        coalesce(
            greatest(
                disturbed,
                bool_or(disturbed) FILTER (WHERE ranks) OVER (
                    PARTITION BY session_id, evaluation_id, kernel_id, task_id
                )
            ),
            true
        ) AS is_disturbed
    FROM explained
),
-- The lower one of two sessions that confirm a win is not noisy, and belongs to the same evaluation.
noisy_evaluations AS (
    SELECT
        evaluation_id, kernel_id, task_id, clock,
        bool_or(is_confirmed AND ranks) AS is_confirmed,
        list(session_id) FILTER (WHERE NOT is_disturbed) AS undisturbed
    FROM settled
    GROUP BY evaluation_id, kernel_id, task_id, clock
)
SELECT
    timings.* EXCLUDE (clock) REPLACE (
        coalesce(timings.confirmed, early.is_confirmed, false) AS confirmed,
        timings.impossible IS NOT NULL OR coalesce(
            timings.disturbed,
            timings.noisy AND NOT coalesce(
                list_contains(early.undisturbed, timings.session_id), false
            )
        ) AS disturbed,
        coalesce(
            timings.unresolved,
            -- The first condition, which is the quickest, is false for nearly all rows.
            list_min(timings.samples_ms) <= CAST(5 * timings.resolution_ms AS FLOAT)
            AND list_median(timings.samples_ms) <= CAST(5 * timings.resolution_ms AS FLOAT),
            false
        ) AS unresolved
    ),
    CASE
        WHEN timings.clock = 'gpu' AND devices.kind = 'cpu' THEN NULL
        WHEN timings.clock IS NOT NULL THEN timings.clock
        WHEN devices.kind = 'cuda' AND timings.cache = 'cold' THEN 'gpu'
        WHEN devices.kind = 'cuda' OR timings.cache = 'cold' THEN 'throughput'
    END AS clock
FROM (
    SELECT
        *,
        CASE
            WHEN inner_loops < 1 THEN 'a sample is of at least one call'
            WHEN overhead_ms < 0 OR resolution_ms < 0
                THEN 'overhead_ms and resolution_ms are not negative'
            -- The first condition, which is the quickest, is false for nearly all rows.
            WHEN
                blocks <> range(len(blocks))::INTEGER[]
                AND (list_min(blocks) < 0 OR list_unique(blocks) < len(blocks))
                THEN 'blocks are not negative, and each occurs once'
            WHEN len(positions) <> len(blocks) OR list_min(positions) < 0
                THEN 'every sample has its position, which is not negative'
            WHEN len(control_ratios) <> len(blocks) OR list_min(control_ratios) <= 0
                THEN 'every sample has its control ratio, which is positive'
        END AS impossible
    FROM timings
) AS timings
LEFT JOIN devices ON devices.device_id = timings.device_id
LEFT JOIN noisy_evaluations AS early
    ON
        early.evaluation_id = timings.evaluation_id
        AND early.kernel_id = timings.kernel_id
        AND early.task_id = timings.task_id
        AND early.clock = timings.clock
