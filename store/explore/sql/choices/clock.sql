-- Clocks that timed something
SELECT DISTINCT clock
FROM timed_places
WHERE clock IS NOT NULL
ORDER BY clock
