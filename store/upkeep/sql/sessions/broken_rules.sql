-- One row per rule of the view impossible_timings that a tested timing breaks.
SELECT DISTINCT "rule"
FROM temp.impossible_timings
ORDER BY "rule"
