-- One row per origin of tasks and kernels: source, revision, license, how many texts.
SELECT *
FROM (
    SELECT 'tasks' AS what, source, source_revision, license, count(*) AS texts
    FROM tasks
    GROUP BY ALL
    UNION ALL
    SELECT 'kernels' AS what, source, source_revision, license, count(*) AS texts
    FROM kernels
    GROUP BY ALL
)
ORDER BY ALL
LIMIT 200
