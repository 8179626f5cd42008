-- Precisions that were timed
SELECT DISTINCT "precision"
FROM timed_places
WHERE "precision" IS NOT NULL
ORDER BY "precision"
