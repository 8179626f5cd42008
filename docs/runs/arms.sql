-- Stage 3, arms of the same seed held against each other on the training tasks for which both have a
-- speedup over eager: the best of each task. Arms of a seed are asked the same tasks in the same order.
-- Without copies, answers that repeat the text of a kernel of their prompt are left out.
WITH attempts AS (
    SELECT
        json_extract_string(runs.config, '$.config.arm') AS arm,
        json_extract_string(runs.config, '$.config.seed') AS seed,
        generations.task_id, speeds.speedup,
        copies.generation_id IS NOT NULL AS copied
    FROM generations
    LEFT JOIN copies ON copies.generation_id = generations.generation_id
    INNER JOIN runs ON runs.run_id = generations.run_id AND runs."name" = 'contrastive'
    INNER JOIN scored_speedups AS speeds
        ON speeds.kernel_id = generations.kernel_id AND speeds.task_id = generations.task_id
    WHERE speeds.baseline = 'eager'
),
best AS (
    SELECT arm, seed, task_id, with_copies, max(speedup) AS speedup
    FROM attempts CROSS JOIN (VALUES (TRUE), (FALSE)) AS counted (with_copies)
    WHERE with_copies OR NOT copied
    GROUP BY ALL
)
SELECT
    best.seed, best.with_copies, best.arm, other.arm AS other, count(*) AS tasks,
    round(exp(avg(ln(best.speedup))), 3) AS geomean,
    round(exp(avg(ln(other.speedup))), 3) AS other_geomean,
    round(median(best.speedup), 3) AS median,
    round(median(other.speedup), 3) AS other_median,
    count(*) FILTER (WHERE best.speedup > 1.02 * other.speedup) AS faster,
    count(*) FILTER (WHERE other.speedup > 1.02 * best.speedup) AS slower
FROM best
INNER JOIN best AS other USING (seed, task_id, with_copies)
WHERE best.arm < other.arm
GROUP BY ALL
ORDER BY best.with_copies DESC, best.arm, other.arm, best.seed
