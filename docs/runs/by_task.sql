-- The best speedup after all attempts at each held-out task, by part and arm: the geometric mean over
-- seeds, the share of answers that are correct, and the number of seeds whose best kernel is within 5 %
-- of the fastest kernel that any arm or earlier run found (best). A seed without a speedup counts as 1,
-- as does one below 1. Speedups are over the best baseline, pooled over the sessions of a kernel, as
-- prompts show them. part is that of primary.sql. Several tasks may have one title.
WITH attempts AS (
    SELECT
        CASE WHEN starts_with(namespace, 'trained-') THEN 'stage 3' ELSE 'search' END AS part,
        regexp_extract(namespace, '^(?:arms/|trained-)([a-z]+)/', 1) AS arm,
        regexp_extract(namespace, '/(\d+)/[0-9a-f]+$', 1) AS seed,
        task_id, kernel_id
    FROM generations
    WHERE regexp_full_match(namespace, '(arms/|trained-[a-z]+/)[a-z]+/\d+/[0-9a-f]+')
),
speeds AS (
    SELECT kernel_id, task_id, min(speedup) AS speedup
    FROM scored_speedups
    GROUP BY kernel_id, task_id
),
bests AS (
    SELECT
        attempts.task_id, attempts.part, attempts.arm, attempts.seed,
        max(speeds.speedup) AS speedup,
        count(*) AS attempts,
        count(*) FILTER (
            (attempts.kernel_id, attempts.task_id) IN (
                SELECT (kernel_id, task_id) FROM verdicts WHERE correct
            )
        ) AS correct
    FROM attempts
    LEFT JOIN speeds
        ON speeds.kernel_id = attempts.kernel_id AND speeds.task_id = attempts.task_id
    GROUP BY attempts.task_id, attempts.part, attempts.arm, attempts.seed
),
fastest AS (
    SELECT task_id, max(speedup) AS best
    FROM speeds
    GROUP BY task_id
)
SELECT
    bests.part,
    any_value(task_names.title) AS task,
    left(bests.task_id, 12) AS task_id,
    bests.arm,
    round(max(fastest.best), 3) AS best,
    round(exp(avg(ln(greatest(coalesce(bests.speedup, 1), 1)))), 3) AS geomean,
    count(*) FILTER (bests.speedup >= fastest.best / 1.05) AS near_best,
    count(*) AS seeds,
    round(sum(bests.correct) / sum(bests.attempts), 4) AS correct
FROM bests
INNER JOIN task_names ON task_names.task_id = bests.task_id
LEFT JOIN fastest ON fastest.task_id = bests.task_id
GROUP BY bests.part, bests.task_id, bests.arm
ORDER BY bests.part, task, bests.task_id, bests.arm
