-- Baselines that were timed
SELECT arm AS baseline
FROM timed_places
WHERE arm <> 'kernel'
GROUP BY arm
ORDER BY arm <> 'eager', arm
