-- Precisions that were timed
SELECT DISTINCT "precision"
FROM timed_arms
WHERE "precision" IS NOT NULL
ORDER BY "precision"
