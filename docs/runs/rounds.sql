-- Results of single attempts, by part, side, arm and round: scored is the share of answers whose kernel has a
-- speedup (it is correct, and a session ranks), geomean the geometric mean of the speedups over the
-- best baseline (an answer without a speedup, or with one below 1, counts as 1), near_best the share
-- of answers within 5 % of the fastest kernel that any arm or earlier run found for the task, and
-- gains the share that is over 2 % faster than the best of the rounds before with the same seed and
-- task. shown is the mean number of kernels in a prompt. Speedups are pooled over the sessions of a
-- kernel, as prompts show them. part is that of primary.sql.
WITH attempts AS (
    SELECT
        CASE
            WHEN starts_with(generations.namespace, 'trained-') THEN 'stage 3'
            ELSE 'search'
        END AS part,
        regexp_extract(generations.namespace, '^(?:arms/|trained-)([a-z]+)/', 1) AS arm,
        CASE
            WHEN ends_with(task_names.family, ':held-out') THEN 'held-out tasks'
            ELSE 'held-out families'
        END AS side,
        generations.namespace, generations.step AS round, generations.task_id,
        generations.kernel_id, coalesce(len(generations.exemplar_kernel_ids), 0) AS shown
    FROM generations
    INNER JOIN task_names ON task_names.task_id = generations.task_id
    WHERE
        regexp_full_match(
            generations.namespace, '(arms/|trained-[a-z]+/)[a-z]+/\d+/[0-9a-f]+'
        )
),
speeds AS (
    SELECT kernel_id, task_id, min(speedup) AS speedup
    FROM scored_speedups
    GROUP BY kernel_id, task_id
),
fastest AS (
    SELECT task_id, max(speedup) AS best
    FROM speeds
    GROUP BY task_id
),
timed AS (
    SELECT
        attempts.*, greatest(coalesce(speeds.speedup, 1), 1) AS counted, speeds.speedup,
        fastest.best,
        max(speeds.speedup) OVER (
            PARTITION BY attempts.namespace, attempts.task_id
            ORDER BY attempts.round RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS best_before
    FROM attempts
    LEFT JOIN speeds
        ON speeds.kernel_id = attempts.kernel_id AND speeds.task_id = attempts.task_id
    LEFT JOIN fastest ON fastest.task_id = attempts.task_id
)
SELECT
    part, side, arm, round,
    count(DISTINCT task_id) AS tasks,
    count(*) AS attempts,
    round(avg(shown), 2) AS shown,
    round(avg(CAST(speedup IS NOT NULL AS INTEGER)), 4) AS scored,
    round(exp(avg(ln(counted))), 4) AS geomean,
    round(avg(CAST(coalesce(speedup >= best / 1.05, false) AS INTEGER)), 4) AS near_best,
    round(avg(CAST(counted > 1.02 * greatest(coalesce(best_before, 1), 1) AS INTEGER)), 4) AS gains
FROM timed
GROUP BY part, side, arm, round
ORDER BY part, side, round, arm
