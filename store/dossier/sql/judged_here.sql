-- One row: how many of the kernels that a lake has judged last, on one device, are correct and rank
-- there, and why most of the others do not rank. Without verdicts of its own, the device is NULL.
WITH own AS (
    SELECT devices."name" AS device
    FROM evaluations
    INNER JOIN runs ON runs.run_id = evaluations.run_id
    INNER JOIN devices ON devices.device_id = evaluations.device_id
    WHERE
        runs.kind = 'evaluation'
        AND runs.lake_id = (SELECT lakes.lake_id FROM lakes ORDER BY lakes.created_at LIMIT 1)
    ORDER BY evaluations.created_at DESC
    LIMIT 1
),
correct AS (
    SELECT DISTINCT verdicts.kernel_id
    FROM verdicts
    INNER JOIN own ON own.device = verdicts.device
    WHERE verdicts.correct
),
ranking AS (
    SELECT DISTINCT kernel_speedups.kernel_id
    FROM kernel_speedups
    INNER JOIN own ON own.device = kernel_speedups.device
),
reasons AS (
    SELECT unranked_sessions.reason, count(DISTINCT unranked_sessions.kernel_id) AS kernels
    FROM unranked_sessions
    INNER JOIN own ON own.device = unranked_sessions.device
    SEMI JOIN correct ON correct.kernel_id = unranked_sessions.kernel_id
    ANTI JOIN ranking ON ranking.kernel_id = unranked_sessions.kernel_id
    WHERE unranked_sessions.reason != 'its evaluation does not count'
    GROUP BY unranked_sessions.reason
)
SELECT
    (SELECT device FROM own) AS device,
    (SELECT count(*) FROM correct) AS correct,
    (SELECT count(*) FROM correct SEMI JOIN ranking ON ranking.kernel_id = correct.kernel_id)
        AS ranking,
    (SELECT reason FROM reasons ORDER BY kernels DESC, reason LIMIT 1) AS reason
