-- One row per evaluator, version and device: how many verdicts, and how many of them are correct.
SELECT
    evaluations.evaluator,
    evaluations.evaluator_version AS version,
    devices."name" AS device,
    count(*) AS verdicts,
    count(*) FILTER (WHERE evaluations.status = 'correct') AS correct
FROM evaluations
INNER JOIN devices ON devices.device_id = evaluations.device_id
GROUP BY ALL
ORDER BY ALL
