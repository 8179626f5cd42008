-- Estimates of the spread of sessions that the intervals of a kernel include.
FROM session_spreads
SEMI JOIN (
    SELECT devices."name", evaluations.evaluator, evaluations.evaluator_version
    FROM evaluations
    INNER JOIN devices ON devices.device_id = evaluations.device_id
    WHERE evaluations.kernel_id = $kernel
) AS judged
    ON
        judged."name" = session_spreads.device
        AND judged.evaluator = session_spreads.evaluator
        AND judged.evaluator_version = session_spreads.evaluator_version
QUALIFY row_number() OVER (
    PARTITION BY device, clock, evaluator, evaluator_version
    ORDER BY origin IS NULL DESC, created_at DESC, spread_id DESC
) = 1
ORDER BY spread_id
