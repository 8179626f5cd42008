-- Claims on the H100 that do not hold on the H200: what was published, what was judged, and why.
-- A claim falls where the kernel is not correct, or where the whole interval over eager lies below
-- nine tenths of the claim. An H200 has the H100's multiprocessors and more memory bandwidth.
WITH judged AS (
    SELECT
        kernel_id, task_id,
        arg_max({'status': status, 'reason': reason, 'message': message}, status <> 'correct') AS found
    FROM evaluations
    WHERE
        evaluator = 'judge' AND status <> 'evaluator_error'
        AND device_id IN (SELECT device_id FROM devices WHERE "name" = 'H200')
    GROUP BY kernel_id, task_id
),
measured AS (
    SELECT kernel_id, task_id, speedup, speedup_low, speedup_high, noisy
    FROM speedups
    WHERE device = 'H200' AND clock = 'gpu' AND baseline = 'eager'
    QUALIFY row_number() OVER (
        PARTITION BY kernel_id, task_id ORDER BY noisy, measured_at DESC, session_id
    ) = 1
)
SELECT
    task_names."name" AS task,
    round(claims.speedup, 2) AS claimed,
    round(measured.speedup, 2) AS measured,
    round(measured.speedup_low, 2) AS low,
    round(measured.speedup_high, 2) AS high,
    measured.noisy,
    judged.found.status AS status,
    judged.found.reason AS reason,
    left(judged.found.message, 80) AS message
FROM current_claims AS claims
INNER JOIN judged ON judged.kernel_id = claims.kernel_id AND judged.task_id = claims.task_id
INNER JOIN task_names ON task_names.task_id = claims.task_id
LEFT JOIN measured ON measured.kernel_id = claims.kernel_id AND measured.task_id = claims.task_id
WHERE
    claims.gpu = 'H100' AND claims.baseline = 'eager' AND claims.metric = 'speedup'
    AND (judged.found.status <> 'correct' OR measured.speedup_high < 0.9 * claims.speedup)
ORDER BY judged.found.status = 'correct', claims.speedup DESC
