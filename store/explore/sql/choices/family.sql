-- Families
SELECT DISTINCT family
FROM task_labels
ORDER BY family
