-- One row per stored text or imported figure: its table, id, license, source, and whether it must
-- have a license to leave. A text that states none has that of the attempts it came out of, or the
-- terms of the policy that wrote it. $own is what the publisher grants for texts that no import
-- brought; NULL where nothing is granted.
WITH written AS (
    SELECT
        generations.generation_id,
        generations.kernel_id,
        coalesce(
            generations.license,
            policies.output_terms,
            CASE WHEN runs.kind IN ('rollout', 'training') THEN $own::VARCHAR END
        ) AS license
    FROM generations
    LEFT JOIN policies ON policies.policy_id = generations.policy_id
    LEFT JOIN runs ON runs.run_id = generations.run_id
),
of_kernels AS (
    SELECT kernel_id, string_agg(DISTINCT license, ' AND ' ORDER BY license) AS license
    FROM written
    WHERE kernel_id IS NOT NULL
    GROUP BY kernel_id
),
of_tasks AS (
    SELECT task_id, string_agg(DISTINCT license, ' AND ' ORDER BY license) AS license
    FROM task_labels
    GROUP BY task_id
)
SELECT
    'tasks' AS "table",
    tasks.task_id AS id,
    coalesce(tasks.license, of_tasks.license) AS license,
    tasks.license AS stated,
    tasks.source,
    true AS needed
FROM tasks
LEFT JOIN of_tasks ON of_tasks.task_id = tasks.task_id
UNION ALL
SELECT
    'kernels',
    kernels.kernel_id,
    coalesce(kernels.license, of_kernels.license),
    kernels.license,
    kernels.source,
    true
FROM kernels
LEFT JOIN of_kernels ON of_kernels.kernel_id = kernels.kernel_id
UNION ALL
SELECT
    'generations',
    generations.generation_id,
    written.license,
    generations.license,
    generations.source,
    coalesce(generations.completion, generations.analysis, generations.design) IS NOT NULL
FROM generations
INNER JOIN written ON written.generation_id = generations.generation_id
UNION ALL
SELECT 'sessions', session_id, license, license, source, true
FROM sessions
UNION ALL
SELECT 'evaluations', evaluation_id, license, license, source, false
FROM evaluations
WHERE license IS NOT NULL
UNION ALL
SELECT 'claims', claim_id, license, license, source, false
FROM claims
WHERE license IS NOT NULL
