-- Compares the answers of a search with the kernels of the teacher that the lake had before it.
-- One row per side and arm. Speedups are those over eager, pooled over sessions. Tasks and answers
-- without one, or with one below 1, count as 1; exemplars without one are left out.
-- history, shown, answer and best are geometric means of the teacher's fastest kernel of a task, the
-- fastest exemplar of a prompt, a single answer, and the fastest answer of a seed at a task.
-- copies is the share of answers with the text of a kernel of the teacher. beats_shown and
-- beats_history are the shares of answers that are over 2 % faster than every exemplar of their
-- prompt, and than every kernel of the teacher. gain is the geometric mean of best to history, where
-- a slower best counts as 1.
WITH speeds AS (
    SELECT kernel_id, task_id, min(speedup) AS speedup
    FROM scored_speedups
    WHERE baseline = 'eager'
    GROUP BY kernel_id, task_id
),
history AS (
    SELECT DISTINCT generations.kernel_id, generations.task_id, kernels.code
    FROM generations
    INNER JOIN kernels ON kernels.kernel_id = generations.kernel_id
    WHERE generations.namespace IS NULL
),
answers AS (
    SELECT
        regexp_extract(generations.namespace, '^arms/([a-z]+)/', 1) AS arm,
        regexp_extract(generations.namespace, '^arms/[a-z]+/(\d+)/', 1) AS seed,
        CASE
            WHEN ends_with(task_names.family, ':held-out') THEN 'held-out tasks'
            ELSE 'held-out families'
        END AS side,
        generations.task_id, generations.generation_id, generations.exemplar_kernel_ids,
        coalesce((generations.task_id, kernels.code) IN (SELECT task_id, code FROM history), false)
            AS copy,
        greatest(coalesce(speeds.speedup, 1), 1) AS speedup
    FROM generations
    INNER JOIN task_names ON task_names.task_id = generations.task_id
    LEFT JOIN speeds
        ON speeds.kernel_id = generations.kernel_id AND speeds.task_id = generations.task_id
    LEFT JOIN kernels ON kernels.kernel_id = generations.kernel_id
    WHERE starts_with(generations.namespace, 'arms/')
),
fastest AS (
    SELECT history.task_id, greatest(max(speeds.speedup), 1) AS speedup
    FROM history
    INNER JOIN speeds USING (kernel_id, task_id)
    GROUP BY history.task_id
),
shown AS (
    SELECT exemplars.generation_id, greatest(max(speeds.speedup), 1) AS speedup
    FROM (
        SELECT generation_id, task_id, unnest(exemplar_kernel_ids) AS kernel_id FROM answers
    ) AS exemplars
    INNER JOIN speeds USING (kernel_id, task_id)
    GROUP BY exemplars.generation_id
),
searches AS (
    SELECT
        answers.side, answers.arm, answers.seed, answers.task_id,
        count(*) AS answers,
        coalesce(any_value(fastest.speedup), 1) AS history,
        avg(ln(shown.speedup)) AS shown,
        avg(ln(answers.speedup)) AS answer,
        max(answers.speedup) AS best,
        avg(CAST(answers.copy AS INTEGER)) AS copies,
        avg(CAST(answers.speedup > 1.02 * shown.speedup AS INTEGER)) AS beats_shown,
        avg(
            CAST(answers.speedup > 1.02 * coalesce(fastest.speedup, 1) AS INTEGER)
        ) AS beats_history
    FROM answers
    LEFT JOIN fastest ON fastest.task_id = answers.task_id
    LEFT JOIN shown ON shown.generation_id = answers.generation_id
    GROUP BY answers.side, answers.arm, answers.seed, answers.task_id
)
SELECT
    side, arm,
    count(DISTINCT task_id) AS tasks,
    count(DISTINCT seed) AS seeds,
    sum(answers)::BIGINT AS answers,
    round(exp(avg(ln(history))), 4) AS history,
    round(exp(avg(shown)), 4) AS shown,
    round(exp(avg(answer)), 4) AS answer,
    round(exp(avg(ln(best))), 4) AS best,
    round(avg(copies), 4) AS copies,
    round(avg(beats_shown), 4) AS beats_shown,
    round(avg(beats_history), 4) AS beats_history,
    round(exp(avg(ln(greatest(best / history, 1)))), 4) AS gain
FROM searches
GROUP BY side, arm
ORDER BY side, arm
