-- Secondary figures of PROTOCOL.md by namespace prefix, side and arm, over seeds: attempts, their
-- outcomes, distinct kernels and copies. fast_1 is the share of tasks and seeds with a correct kernel
-- faster than the best baseline. copies repeat the text of a kernel of their prompt, whatever its
-- path. seconds are those of all
-- rounds of a seed's search, over all arms, averaged over seeds; the seconds of a search with several
-- seeds are divided among them. A kernel that only the protocol training has judged has its verdict
-- and speedup by that. Attempts of earlier runs, in namespaces earlier/, are left out.
WITH attempts AS (
    SELECT
        regexp_extract(generations.namespace, '^([^/]+)/', 1) AS search,
        regexp_extract(generations.namespace, '^[^/]+/([a-z]+)/', 1) AS arm,
        regexp_extract(generations.namespace, '^[^/]+/[a-z]+/(\d+)', 1) AS seed,
        CASE
            WHEN ends_with(task_names.family, ':held-out') THEN 'held-out tasks'
            WHEN task_names.split = 'test' THEN 'held-out families'
            ELSE 'train'
        END AS side,
        generations.*
    FROM generations
    INNER JOIN task_names ON task_names.task_id = generations.task_id
    WHERE
        generations.namespace IS NOT NULL
        AND NOT starts_with(generations.namespace, 'earlier/')
        AND generations.finish_reason IS DISTINCT FROM 'error'
),
judged AS (
    SELECT kernel_id, task_id, bool_and(correct) AS correct
    FROM (
        SELECT kernel_id, task_id, correct FROM outcomes
        UNION ALL
        SELECT kernel_id, task_id, correct
        FROM training_outcomes
        ANTI JOIN outcomes USING (kernel_id, task_id)
    )
    GROUP BY kernel_id, task_id
),
speeds AS (
    SELECT kernel_id, task_id, min(speedup) AS speedup
    FROM (
        SELECT kernel_id, task_id, speedup FROM scored_speedups
        UNION ALL
        SELECT kernel_id, task_id, speedup
        FROM training_speedups
        ANTI JOIN outcomes USING (kernel_id, task_id)
    )
    GROUP BY kernel_id, task_id
),
solved AS (
    SELECT search, side, arm, avg(CAST(coalesce(best > 1, false) AS INTEGER)) AS fast_1
    FROM (
        SELECT
            attempts.search, attempts.side, attempts.arm, attempts.seed, attempts.task_id,
            max(speeds.speedup) AS best
        FROM attempts
        LEFT JOIN speeds
            ON speeds.kernel_id = attempts.kernel_id AND speeds.task_id = attempts.task_id
        GROUP BY ALL
    )
    GROUP BY search, side, arm
),
seconds AS (
    SELECT search, arm, avg(seconds) AS seconds
    FROM (
        SELECT runs.search, runs.arm, runs.seed, sum(metrics.value / runs.seeds) AS seconds
        FROM (
            SELECT search, arm, seed, run_id, count(*) OVER (PARTITION BY search, arm, run_id) AS seeds
            FROM (SELECT DISTINCT search, arm, seed, run_id FROM attempts)
        ) AS runs
        INNER JOIN metrics ON metrics.run_id = runs.run_id
        WHERE metrics."name" = 'search/seconds'
        GROUP BY ALL
    )
    GROUP BY search, arm
)
SELECT
    attempts.search, attempts.side, attempts.arm,
    count(DISTINCT attempts.seed) AS seeds,
    count(DISTINCT attempts.task_id) AS tasks,
    count(*) AS attempts,
    count(attempts.kernel_id) AS with_code,
    round(avg(CAST(coalesce(judged.correct, false) AS INTEGER)), 4) AS correct,
    count(DISTINCT CASE WHEN judged.correct THEN attempts.kernel_id END) AS distinct_correct,
    any_value(round(solved.fast_1, 4)) AS fast_1,
    round(avg(CAST(copies.generation_id IS NOT NULL AS INTEGER)), 4) AS copies,
    round(avg(attempts.completion_tokens), 1) AS tokens,
    any_value(round(seconds.seconds, 1)) AS seconds
FROM attempts
LEFT JOIN copies ON copies.generation_id = attempts.generation_id
LEFT JOIN judged ON judged.kernel_id = attempts.kernel_id AND judged.task_id = attempts.task_id
LEFT JOIN solved
    ON
        solved.search = attempts.search
        AND solved.side = attempts.side
        AND solved.arm = attempts.arm
LEFT JOIN seconds ON seconds.search = attempts.search AND seconds.arm = attempts.arm
GROUP BY attempts.search, attempts.side, attempts.arm
ORDER BY attempts.search, attempts.side DESC, attempts.arm
