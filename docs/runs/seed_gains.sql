-- The primary figure of PROTOCOL.md task by task: the logarithm of the ratio of arm bucket to another
-- arm, of the best speedups of a seed at a task. side is that of primary.sql. solved_by_none says
-- whether arm none has a correct answer at the task with any seed, and same_prompts whether both arms
-- had the same prompts, text by text. The attempts, sessions and best kernels that count are those of
-- primary.sql. benchmarks/paired_tasks.py makes intervals and tests of these rows.
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
prompts AS (
    SELECT
        regexp_extract(namespace, '^(?:arms/|trained-)([a-z]+)/', 1) AS arm,
        CAST(regexp_extract(namespace, '/(\d+)/[0-9a-f]+$', 1) AS BIGINT) AS seed,
        task_id,
        list_sort(list(concat_ws(':', step, prompt_id))) AS prompts
    FROM generations
    WHERE regexp_full_match(namespace, '(arms/|trained-[a-z]+/)[a-z]+/\d+/[0-9a-f]+')
    GROUP BY ALL
),
solved AS (
    SELECT attempts.task_id, bool_or((attempts.kernel_id, attempts.task_id) IN (
        SELECT (kernel_id, task_id) FROM verdicts WHERE correct
    )) AS by_none
    FROM attempts
    WHERE attempts.arm = 'none'
    GROUP BY attempts.task_id
)
SELECT
    bests.part, bests.side, others.arm AS other, task_names.title, bests.task_id[:12] AS task, bests.seed,
    coalesce(solved.by_none, false) AS solved_by_none,
    prompts.prompts = other_prompts.prompts AS same_prompts,
    round(bests.gain - others.gain, 6) AS gain
FROM bests
INNER JOIN bests AS others
    ON
        others.part = bests.part
        AND others.side = bests.side
        AND others.seed = bests.seed
        AND others.task_id = bests.task_id
INNER JOIN task_names ON task_names.task_id = bests.task_id
INNER JOIN prompts
    ON
        prompts.arm = bests.arm
        AND prompts.seed = bests.seed
        AND prompts.task_id = bests.task_id
INNER JOIN prompts AS other_prompts
    ON
        other_prompts.arm = others.arm
        AND other_prompts.seed = bests.seed
        AND other_prompts.task_id = bests.task_id
LEFT JOIN solved ON solved.task_id = bests.task_id
WHERE bests.arm = 'bucket' AND others.arm <> 'bucket'
ORDER BY bests.part, bests.side, others.arm, task_names.title, task, bests.seed
