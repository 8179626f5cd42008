-- The primary figure of PROTOCOL.md: geometric mean over held-out tasks of the best speedup over the
-- best baseline after all attempts, by part, side and arm, and its ratio to each other arm.
-- part is search (without training) or stage 3. side: held-out tasks of families that train, or of
-- families held out as a whole. A task without a correct kernel, or with a slower one, counts as 1.
-- Where runs have measured the best kernels again (remeasure), only these kernels count. The newest
-- session of a kernel counts alone: pooled with those that chose the kernel, its speedup would be too
-- high. The best baseline of a kernel is the one with the least speedup. low and high are the 2.5 %
-- and 97.5 % quantiles of 2,000 bootstrap replicates, which draw tasks and, independently, seeds with
-- replacement; draws are hashes of the replicate, so that the figures are the same everywhere.
-- Rows without `other` are geometric means, rows with it are ratios of arm to other. below is the
-- share of replicates in which the ratio is 1 or less.
WITH attempts AS (
    SELECT
        CASE WHEN starts_with(namespace, 'trained-') THEN 'stage 3' ELSE 'search' END AS part,
        regexp_extract(namespace, '^(?:arms/|trained-)([a-z]+)/', 1) AS arm,
        CAST(regexp_extract(namespace, '/(\d+)/[0-9a-f]+$', 1) AS BIGINT) AS seed,
        task_id, kernel_id
    FROM generations
    WHERE regexp_full_match(namespace, '(arms/|trained-[a-z]+/)[a-z]+/\d+/[0-9a-f]+')
),
final AS (
    SELECT DISTINCT evaluations.kernel_id, evaluations.task_id
    FROM evaluations
    INNER JOIN runs ON runs.run_id = evaluations.run_id
    WHERE
        json_extract_string(runs.config, '$.pool.remeasure') = 'true'
        AND evaluations.status <> 'evaluator_error'
),
sessions AS (
    SELECT
        scored.kernel_id, scored.task_id, scored.baseline,
        arg_max(
            scored.speedup, {'measured_at': scored.measured_at, 'session_id': scored.session_id}
        ) AS speedup
    FROM rankable_sessions AS scored
    INNER JOIN scored_workloads
        ON
            scored_workloads.task_id = scored.task_id
            AND scored_workloads.device = scored.device
            AND scored_workloads.workload_id = scored.workload_id
    WHERE
        scored.ranked
        AND (
            NOT EXISTS (SELECT 1 FROM final)
            OR (scored.kernel_id, scored.task_id) IN (SELECT (kernel_id, task_id) FROM final)
        )
    GROUP BY scored.kernel_id, scored.task_id, scored.baseline
),
speeds AS (
    SELECT kernel_id, task_id, min(speedup) AS speedup
    FROM sessions
    GROUP BY kernel_id, task_id
),
bests AS (
    SELECT
        attempts.part,
        CASE
            WHEN ends_with(task_names.family, ':held-out') THEN 'held-out tasks'
            ELSE 'held-out families'
        END AS side,
        attempts.arm, attempts.seed, attempts.task_id,
        ln(greatest(coalesce(max(speeds.speedup), 1), 1)) AS gain
    FROM attempts
    INNER JOIN task_names ON task_names.task_id = attempts.task_id
    LEFT JOIN speeds
        ON speeds.kernel_id = attempts.kernel_id AND speeds.task_id = attempts.task_id
    GROUP BY ALL
),
-- One row per figure: an arm alone, or the difference to another arm on the same task and seed.
gains AS (
    SELECT part, side, arm, CAST(NULL AS VARCHAR) AS other, seed, task_id, gain
    FROM bests
    UNION ALL
    SELECT
        bests.part, bests.side, bests.arm, others.arm AS other, bests.seed, bests.task_id,
        bests.gain - others.gain AS gain
    FROM bests
    INNER JOIN bests AS others USING (part, side, seed, task_id)
    WHERE bests.arm <> others.arm
),
placed AS (
    SELECT
        *,
        dense_rank() OVER (PARTITION BY part, side ORDER BY task_id) - 1 AS task_place,
        dense_rank() OVER (PARTITION BY part, side ORDER BY seed) - 1 AS seed_place
    FROM gains
),
sizes AS (
    SELECT part, side, count(DISTINCT task_id) AS tasks, count(DISTINCT seed) AS seeds
    FROM bests
    GROUP BY part, side
),
task_draws AS (
    SELECT
        sizes.part, sizes.side, replicates.replicate,
        (
            md5_number_lower(concat_ws(':', 'task', replicates.replicate, slots.slot)) % sizes.tasks
        )::BIGINT AS task_place
    FROM sizes
    CROSS JOIN (SELECT unnest(range(2000)) AS replicate) AS replicates
    INNER JOIN (SELECT unnest(range(1000)) AS slot) AS slots ON slots.slot < sizes.tasks
),
seed_draws AS (
    SELECT
        sizes.part, sizes.side, replicates.replicate,
        (
            md5_number_lower(concat_ws(':', 'seed', replicates.replicate, slots.slot)) % sizes.seeds
        )::BIGINT AS seed_place
    FROM sizes
    CROSS JOIN (SELECT unnest(range(2000)) AS replicate) AS replicates
    INNER JOIN (SELECT unnest(range(100)) AS slot) AS slots ON slots.slot < sizes.seeds
),
replicates AS (
    SELECT
        placed.part, placed.side, placed.arm, placed.other, task_draws.replicate,
        avg(placed.gain) AS mean
    FROM task_draws
    INNER JOIN seed_draws USING (part, side, replicate)
    INNER JOIN placed
        ON
            placed.part = task_draws.part
            AND placed.side = task_draws.side
            AND placed.task_place = task_draws.task_place
            AND placed.seed_place = seed_draws.seed_place
    GROUP BY ALL
),
intervals AS (
    SELECT
        part, side, arm, other,
        quantile_cont(mean, 0.025) AS low, quantile_cont(mean, 0.975) AS high,
        avg(CAST(mean <= 0 AS INTEGER)) AS below
    FROM replicates
    GROUP BY part, side, arm, other
),
means AS (
    SELECT
        part, side, arm, other, avg(gain) AS mean, count(*) AS n,
        count(DISTINCT task_id) AS tasks, count(DISTINCT seed) AS seeds
    FROM gains
    GROUP BY part, side, arm, other
)
SELECT
    means.part, means.side, means.arm, means.other, means.tasks, means.seeds, means.n,
    round(exp(means.mean), 4) AS geomean,
    round(exp(intervals.low), 4) AS low,
    round(exp(intervals.high), 4) AS high,
    CASE WHEN means.other IS NOT NULL THEN round(intervals.below, 4) END AS below
FROM means
INNER JOIN intervals
    ON
        intervals.part = means.part
        AND intervals.side = means.side
        AND intervals.arm = means.arm
        AND intervals.other IS NOT DISTINCT FROM means.other
ORDER BY means.part, means.side, means.other NULLS FIRST, means.arm
