-- Clocks that timed something
SELECT DISTINCT clock
FROM timed_arms
WHERE clock IS NOT NULL
ORDER BY clock
