-- Devices
-- One row per device model and its software. Two versions of a driver or library are two rows; all
-- other tables go by the name of the device.
-- Empty: Nothing has been judged on a device yet: evaluators run.
WITH judged AS (
    SELECT device_id, count(*) AS evaluations FROM evaluations GROUP BY device_id
),
timed AS (
    SELECT
        device_id,
        count(DISTINCT session_id) AS sessions,
        count(DISTINCT session_id) FILTER (WHERE noisy) AS noisy
    FROM timings
    GROUP BY device_id
)
SELECT
    devices."name" AS device, devices.model, devices.driver, devices.cuda, devices.torch,
    devices.triton,
    sum(coalesce(judged.evaluations, 0))::BIGINT AS evaluations,
    sum(coalesce(timed.sessions, 0))::BIGINT AS "timing sessions",
    sum(coalesce(timed.noisy, 0))::BIGINT AS "of them noisy"
FROM devices
LEFT JOIN judged ON judged.device_id = devices.device_id
LEFT JOIN timed ON timed.device_id = devices.device_id
GROUP BY ALL
ORDER BY
    evaluations DESC, device, devices.model, devices.driver, devices.cuda, devices.torch,
    devices.triton
LIMIT 40
