-- Evaluations
-- Verdicts of this run by status.
SELECT
    devices.name AS device, evaluations.status, evaluations.reason, count(*) AS evaluations,
    avg(evaluations.wall_s) AS mean_wall_s
FROM evaluations
INNER JOIN devices ON devices.device_id = evaluations.device_id
WHERE evaluations.run_id = $run
GROUP BY ALL
ORDER BY device, evaluations DESC, evaluations.status, evaluations.reason
