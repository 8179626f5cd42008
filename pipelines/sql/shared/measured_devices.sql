-- Devices with sessions against a baseline that may rank, the default first.
-- That is the device that a run of this lake measured last. Devices that only imported or pulled
-- runs measured follow by their number of sessions, then by the time of the newest one. Runs and
-- sessions are looked up only where there is a choice.
WITH measured AS (
    SELECT DISTINCT devices."name" AS device
    FROM timed_places
    INNER JOIN devices ON devices.device_id = timed_places.device_id
    WHERE timed_places.arm = $baseline AND NOT timed_places.disturbed
),
choice AS (
    SELECT device
    FROM measured
    WHERE (SELECT count(*) FROM measured) > 1
),
local_runs AS (
    SELECT run_id
    FROM runs
    WHERE
        kind = 'evaluation'
        AND lake_id = (SELECT lakes.lake_id FROM lakes ORDER BY lakes.created_at LIMIT 1)
),
judged_here AS (
    SELECT devices."name" AS device, max(evaluations.created_at) AS last_judged_at
    FROM evaluations
    INNER JOIN devices ON devices.device_id = evaluations.device_id
    SEMI JOIN local_runs ON local_runs.run_id = evaluations.run_id
    SEMI JOIN choice ON choice.device = devices."name"
    GROUP BY devices."name"
),
counted AS (
    SELECT
        devices."name" AS device,
        count(DISTINCT timings.session_id) AS sessions,
        max(timings.created_at) AS last_measured_at
    FROM clocked_timings AS timings
    INNER JOIN devices ON devices.device_id = timings.device_id
    SEMI JOIN choice ON choice.device = devices."name"
    WHERE timings.arm = $baseline AND NOT timings.disturbed
    GROUP BY devices."name"
)
SELECT measured.device
FROM measured
LEFT JOIN judged_here ON judged_here.device = measured.device
LEFT JOIN counted ON counted.device = measured.device
ORDER BY
    judged_here.last_judged_at DESC NULLS LAST, counted.sessions DESC,
    counted.last_measured_at DESC, measured.device
