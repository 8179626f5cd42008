-- Devices
-- One row per device model and software: where verdicts and timings come from. Two versions of
-- driver or libraries are two rows; tables go by the name.
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
