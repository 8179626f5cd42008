-- One row per kernel and task to measure again: the $1 best of a namespace and task by lower bound,
-- without those that a run with --remeasure has judged since. A figure over the slowest of the
-- baselines is enough to choose by. Pulled attempts, attempts of an earlier run (earlier.py) and
-- those that a model was trained with do not count.
WITH bests AS (
    SELECT
        generations.namespace, generations.task_id, generations.kernel_id,
        min(speeds.speedup_low) AS speedup_low
    FROM generations
    INNER JOIN scored_speedups AS speeds
        ON speeds.kernel_id = generations.kernel_id AND speeds.task_id = generations.task_id
    WHERE
        generations.namespace IS NOT NULL
        AND generations.origin IS NULL
        AND NOT starts_with(generations.namespace, 'earlier/')
        AND NOT starts_with(generations.namespace, 'stage3/')
    GROUP BY generations.namespace, generations.task_id, generations.kernel_id
    QUALIFY row_number() OVER (
        PARTITION BY generations.namespace, generations.task_id
        ORDER BY min(speeds.speedup_low) DESC, generations.kernel_id
    ) <= $1
)
SELECT DISTINCT bests.task_id, bests.kernel_id
FROM bests
WHERE NOT EXISTS (
    SELECT 1
    FROM evaluations
    INNER JOIN runs ON runs.run_id = evaluations.run_id
    WHERE
        evaluations.kernel_id = bests.kernel_id
        AND evaluations.task_id = bests.task_id
        AND evaluations.status <> 'evaluator_error'
        AND json_extract_string(runs.config, '$.pool.remeasure') = 'true'
)
ORDER BY bests.task_id, bests.kernel_id
