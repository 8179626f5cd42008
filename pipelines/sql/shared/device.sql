-- The device with the most timing sessions against a baseline; a tie goes to the first by name.
SELECT devices."name" AS device, count(DISTINCT timings.session_id) AS sessions
FROM timings
INNER JOIN devices ON devices.device_id = timings.device_id
WHERE timings.arm = $baseline
GROUP BY devices."name"
ORDER BY sessions DESC, device
LIMIT 1
