-- The device with the most sessions against a baseline that are not noisy; a tie goes to the one
-- measured last.
SELECT devices."name" AS device, count(DISTINCT timings.session_id) AS sessions
FROM timings
INNER JOIN devices ON devices.device_id = timings.device_id
WHERE timings.arm = $baseline AND NOT timings.noisy
GROUP BY devices."name"
ORDER BY sessions DESC, max(timings.created_at) DESC, device
LIMIT 1
