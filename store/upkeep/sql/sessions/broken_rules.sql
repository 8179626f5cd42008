-- One row per rule that tested timings break by themselves (view clocked_timings).
SELECT DISTINCT "rule"
FROM temp.impossible_timings
ORDER BY "rule"
