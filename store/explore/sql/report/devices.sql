-- Devices
-- One row per device model and its software. Two versions of a driver or library are two rows; all
-- other tables go by the name of the device. A timing session reads several clocks; the last three
-- columns count sessions that are quiet by a clock (view speedups) and are empty if no session of
-- the device reads it.
-- Empty: Nothing has been judged on a device yet: evaluators run.
WITH judged AS (
    SELECT device_id, count(*) AS evaluations FROM evaluations GROUP BY device_id
),
sessions AS (
    SELECT device_id, session_id, clock FROM clocked_timings GROUP BY ALL
),
quiet_sessions AS (
    SELECT session_id, clock FROM speedups WHERE NOT disturbed AND NOT unresolved GROUP BY ALL
),
timed AS (
    SELECT
        sessions.device_id,
        sessions.session_id,
        bool_or(quiet.clock IS NOT NULL) FILTER (WHERE sessions.clock = 'gpu') AS gpu,
        bool_or(quiet.clock IS NOT NULL) FILTER (WHERE sessions.clock = 'latency') AS latency,
        bool_or(quiet.clock IS NOT NULL) FILTER (WHERE sessions.clock = 'throughput') AS throughput
    FROM sessions
    LEFT JOIN quiet_sessions AS quiet
        ON quiet.session_id = sessions.session_id AND quiet.clock = sessions.clock
    GROUP BY sessions.device_id, sessions.session_id
),
counted AS (
    SELECT
        device_id,
        count(*) AS sessions,
        sum(gpu::INTEGER) AS gpu,
        sum(latency::INTEGER) AS latency,
        sum(throughput::INTEGER) AS throughput
    FROM timed
    GROUP BY device_id
)
SELECT
    devices."name" AS device, devices.model, devices.driver, devices.cuda, devices.torch,
    devices.triton,
    sum(coalesce(judged.evaluations, 0))::BIGINT AS evaluations,
    sum(coalesce(counted.sessions, 0))::BIGINT AS "timing sessions",
    sum(counted.gpu)::BIGINT AS "quiet by gpu",
    sum(counted.latency)::BIGINT AS "quiet by latency",
    sum(counted.throughput)::BIGINT AS "quiet by throughput"
FROM devices
LEFT JOIN judged ON judged.device_id = devices.device_id
LEFT JOIN counted ON counted.device_id = devices.device_id
GROUP BY ALL
ORDER BY
    evaluations DESC, device, devices.model, devices.driver, devices.cuda, devices.torch,
    devices.triton
LIMIT 40
