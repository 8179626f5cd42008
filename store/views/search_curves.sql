-- One row per namespace, device, baseline and number of attempts k at a task: the best kernels so far.
-- geomean is the geometric mean over the tasks of the namespace of the best speedup after k attempts
-- at each; a task without a correct, ranked kernel counts as 1, as does a best kernel that is slower
-- than the baseline. low and high are 1.96 standard errors of the mean logarithm over tasks. The
-- best kernel has the largest lower bound, as in all rankings. Attempts count in the order in which
-- they were made; those that an endpoint failed are none. Baseline best is, for each kernel, the
-- fastest of the baselines that it was timed against. round is the last that a k-th attempt belongs
-- to, and seconds are those of the search's rounds up to it (view search_rounds), over all of its arms.
-- arm and seed are parts of a namespace of the form NAME/ARM/SEED. Pulled attempts do not count in a
-- namespace in which this lake has attempts.
-- Grows at HASH_JOIN: each point of a curve is a mean over all tasks of its namespace.
--
-- key columns: arm, seed, device, baseline, attempt, tasks, solved, geomean, low, high
-- arm: arm of the experiment, a part of the namespace; NULL if it has none
-- seed: seed of the arm; NULL if the namespace has none
-- policy: name of the author that wrote the last attempts
-- attempt: number of attempts k at each task, from 1
-- round: last round that a k-th attempt belongs to
-- seconds: seconds of the search's rounds up to that one
-- solved: number of tasks with a correct, ranked kernel by then
-- faster: number of tasks whose best speedup is above 1.01 by then
-- tasks: number of tasks of the namespace
-- geomean: geometric mean of the best speedups after k attempts, 1 where there is none (a ratio)
-- low: geomean 1.96 standard errors down (a ratio)
-- high: geomean 1.96 standard errors up (a ratio)
WITH attempts AS (
    SELECT
        namespace, task_id, kernel_id, policy_id, run_id, step,
        row_number() OVER (
            PARTITION BY namespace, task_id ORDER BY step, created_at, generation_id
        ) AS attempt
    FROM generations
    WHERE
        namespace IS NOT NULL
        AND task_id IS NOT NULL
        AND finish_reason IS DISTINCT FROM 'error'
        AND (
            origin IS NULL
            OR namespace NOT IN (
                SELECT namespace FROM generations WHERE origin IS NULL AND namespace IS NOT NULL
            )
        )
),
speeds AS (
    SELECT kernel_id, task_id, device, baseline, speedup, speedup_low
    FROM scored_speedups
    UNION ALL
    SELECT kernel_id, task_id, device, 'best', min(speedup), min(speedup_low)
    FROM scored_speedups
    GROUP BY kernel_id, task_id, device
),
measured AS (
    SELECT
        attempts.namespace, attempts.task_id, speeds.device, speeds.baseline, attempts.attempt,
        max({'low': speeds.speedup_low, 'speedup': speeds.speedup}) AS best
    FROM attempts
    INNER JOIN speeds
        ON speeds.kernel_id = attempts.kernel_id AND speeds.task_id = attempts.task_id
    GROUP BY ALL
),
-- The running best of a task changes only where an attempt beats all before it.
records AS (
    SELECT
        *,
        max(best) OVER (
            PARTITION BY namespace, device, baseline, task_id ORDER BY attempt
        ).speedup AS so_far
    FROM measured
),
sizes AS (
    SELECT
        namespace, count(DISTINCT task_id) AS tasks, max(attempt) AS attempts,
        arg_max(policy_id, attempt) AS policy_id
    FROM attempts
    GROUP BY namespace
),
rounds AS (
    SELECT namespace, attempt, max(step) AS round
    FROM attempts
    GROUP BY namespace, attempt
),
elapsed AS (
    SELECT
        searches.namespace, search_rounds.round,
        sum(sum(search_rounds.seconds)) OVER (
            PARTITION BY searches.namespace ORDER BY search_rounds.round
        ) AS seconds
    FROM search_rounds
    INNER JOIN (
        SELECT DISTINCT namespace, run_id FROM attempts
    ) AS searches ON searches.run_id = search_rounds.run_id
    GROUP BY searches.namespace, search_rounds.round
),
seconds AS (
    SELECT rounds.namespace, rounds.attempt, rounds.round, elapsed.seconds
    FROM rounds
    ASOF LEFT JOIN elapsed
        ON elapsed.namespace = rounds.namespace AND rounds.round >= elapsed.round
),
points AS (
    -- A namespace without any speedup has a curve as well.
    SELECT seconds.namespace, places.device, places.baseline, seconds.attempt
    FROM (SELECT DISTINCT device, baseline FROM measured) AS places
    CROSS JOIN seconds
),
bests AS (
    SELECT
        points.namespace, points.device, points.baseline, points.attempt, tasks.task_id,
        records.so_far
    FROM points
    INNER JOIN (SELECT DISTINCT namespace, task_id FROM attempts) AS tasks
        ON tasks.namespace = points.namespace
    ASOF LEFT JOIN records
        ON
            records.namespace = points.namespace
            AND records.device = points.device
            AND records.baseline = points.baseline
            AND records.task_id = tasks.task_id
            AND points.attempt >= records.attempt
),
summed AS (
    SELECT
        namespace, device, baseline, attempt,
        count(so_far) AS solved,
        count(*) FILTER (WHERE so_far > 1.01) AS faster,
        avg(ln(greatest(coalesce(so_far, 1), 1))) AS mean,
        stddev_samp(ln(greatest(coalesce(so_far, 1), 1))) / sqrt(count(*)) AS error
    FROM bests
    GROUP BY namespace, device, baseline, attempt
)
SELECT
    summed.namespace,
    nullif(regexp_extract(summed.namespace, '^.+/([a-z]+)/\d+(/[0-9a-f]+)?$', 1), '') AS arm,
    TRY_CAST(
        regexp_extract(summed.namespace, '^.+/[a-z]+/(\d+)(/[0-9a-f]+)?$', 1) AS BIGINT
    ) AS seed,
    policies."name" AS policy,
    summed.device,
    summed.baseline,
    summed.attempt,
    seconds.round,
    seconds.seconds,
    sizes.tasks,
    summed.solved,
    summed.faster,
    exp(summed.mean) AS geomean,
    exp(summed.mean - 1.96 * summed.error) AS low,
    exp(summed.mean + 1.96 * summed.error) AS high
FROM summed
INNER JOIN sizes ON sizes.namespace = summed.namespace
INNER JOIN seconds
    ON seconds.namespace = summed.namespace AND seconds.attempt = summed.attempt
LEFT JOIN policies ON policies.policy_id = sizes.policy_id
ORDER BY summed.namespace, summed.device, summed.baseline, summed.attempt
