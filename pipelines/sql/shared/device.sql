-- The device with the most sessions against a baseline that are not noisy; a tie goes to the one
-- measured last. Sessions are counted only where there is a choice.
WITH measured AS (
    SELECT DISTINCT devices."name" AS device
    FROM timings
    INNER JOIN devices ON devices.device_id = timings.device_id
    WHERE timings.arm = $baseline AND NOT timings.noisy
),
choice AS (
    SELECT device
    FROM measured
    WHERE (SELECT count(*) FROM measured) > 1
),
counted AS (
    SELECT
        devices."name" AS device,
        count(DISTINCT timings.session_id) AS sessions,
        max(timings.created_at) AS last_measured_at
    FROM timings
    INNER JOIN devices ON devices.device_id = timings.device_id
    SEMI JOIN choice ON choice.device = devices."name"
    WHERE timings.arm = $baseline AND NOT timings.noisy
    GROUP BY devices."name"
)
SELECT measured.device
FROM measured
LEFT JOIN counted ON counted.device = measured.device
ORDER BY counted.sessions DESC, counted.last_measured_at DESC, measured.device
LIMIT 1
