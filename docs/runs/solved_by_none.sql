-- Do exemplars help at tasks that the model solves without them? One row per side, arm and whether arm
-- none has a correct answer at the task with any seed. For searches without training. correct is the
-- share of answers that are correct; answer and best are geometric means of a single answer and of
-- the fastest answer of a seed at a task, where a missing or slower one counts as 1. Speedups are over
-- the best baseline, pooled over sessions, as in by_task.sql.
WITH speeds AS (
    SELECT kernel_id, task_id, min(speedup) AS speedup
    FROM scored_speedups
    GROUP BY kernel_id, task_id
),
answers AS (
    SELECT
        regexp_extract(generations.namespace, '^arms/([a-z]+)/', 1) AS arm,
        regexp_extract(generations.namespace, '^arms/[a-z]+/(\d+)/', 1) AS seed,
        generations.task_id,
        coalesce((generations.kernel_id, generations.task_id) IN (
            SELECT (kernel_id, task_id) FROM verdicts WHERE correct
        ), false) AS correct,
        greatest(coalesce(speeds.speedup, 1), 1) AS speedup
    FROM generations
    LEFT JOIN speeds
        ON speeds.kernel_id = generations.kernel_id AND speeds.task_id = generations.task_id
    WHERE starts_with(generations.namespace, 'arms/')
),
solved AS (
    SELECT task_id, bool_or(correct) AS by_none
    FROM answers
    WHERE arm = 'none'
    GROUP BY task_id
),
searches AS (
    SELECT
        arm, seed, task_id,
        count(*) AS answers,
        count(*) FILTER (correct) AS correct,
        avg(ln(speedup)) AS answer,
        ln(max(speedup)) AS best
    FROM answers
    GROUP BY arm, seed, task_id
)
SELECT
    CASE
        WHEN ends_with(task_names.family, ':held-out') THEN 'held-out tasks'
        ELSE 'held-out families'
    END AS side,
    solved.by_none,
    searches.arm,
    count(DISTINCT searches.task_id) AS tasks,
    sum(searches.answers)::BIGINT AS answers,
    round(sum(searches.correct) / sum(searches.answers), 4) AS correct,
    round(exp(avg(searches.answer)), 4) AS answer,
    round(exp(avg(searches.best)), 4) AS best
FROM searches
INNER JOIN solved ON solved.task_id = searches.task_id
INNER JOIN task_names ON task_names.task_id = searches.task_id
GROUP BY ALL
ORDER BY side, solved.by_none, searches.arm
