-- Levels
SELECT DISTINCT "level"::VARCHAR AS "level"
FROM task_labels
WHERE "level" IS NOT NULL
ORDER BY "level"
