-- Suspects by task and kind
-- One row per task and class of finding: how many kernels have it, the largest speedup that it
-- would steal, and the line of the surest finding. Confirmed findings quarantine their kernels,
-- which keeps these out of rankings and datasets.
-- Empty: No finding matches. `evaluators audit` searches the kernels.
WITH matching AS (
    SELECT *, coalesce(confidence, 1) AS sureness
    FROM finding_standings
    WHERE true
        AND coalesce(decision, 'open') = $standing
        AND class = $class
        AND coalesce(confidence, 1) >= $confidence
),
grouped AS (
    SELECT
        authors.task_id, matching.class,
        count(DISTINCT matching.kernel_id) AS kernels, max(suspects.speedup) AS speedup,
        max_by(
            {'kernel_id': matching.kernel_id, 'line': matching.line, 'quote': matching.quote},
            {
                'quoted': matching.quote IS NOT NULL, 'sureness': matching.sureness,
                'id': matching.finding_id
            }
        ) AS surest,
        max(matching.sureness) AS share_confidence,
        string_agg(DISTINCT matching.detector, ', ' ORDER BY matching.detector) AS detectors
    FROM matching
    LEFT JOIN authors ON authors.kernel_id = matching.kernel_id
    LEFT JOIN suspects ON suspects.kernel_id = matching.kernel_id
    GROUP BY authors.task_id, matching.class
)
SELECT
    coalesce(task_names.task, 'no task') AS task, grouped.class, grouped.kernels, grouped.speedup,
    grouped.surest.line AS line,
    left(trim(coalesce(
        grouped.surest.quote, string_split(kernels.code, chr(10))[grouped.surest.line]
    )), 120) AS quote,
    grouped.surest.kernel_id AS kernel_id, grouped.share_confidence, grouped.detectors,
    grouped.task_id,
    count(*) OVER () AS total
FROM grouped
LEFT JOIN task_names ON task_names.task_id = grouped.task_id
LEFT JOIN kernels ON kernels.kernel_id = grouped.surest.kernel_id
ORDER BY grouped.share_confidence DESC, grouped.speedup DESC NULLS LAST,
    grouped.kernels DESC, task, grouped.class
