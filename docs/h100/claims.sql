-- Claims for the H100 beside what was measured on one, by policy: speedups over eager by the clock gpu.
-- A claim falls where the kernel is not correct, or where the whole interval lies below nine tenths of
-- it; it is exceeded where the whole interval lies above eleven tenths. The medians are of claims whose
-- kernel is correct and has a quiet session.
WITH judged AS (
    SELECT kernel_id, task_id, "precision", bool_and(status = 'correct') AS correct
    FROM counted_evaluations
    WHERE
        evaluator = 'judge' AND status <> 'evaluator_error'
        AND device_id IN (SELECT device_id FROM devices WHERE "name" = 'H100')
    GROUP BY kernel_id, task_id, "precision"
),
measured AS (
    SELECT kernel_id, task_id, "precision", speedup, speedup_low, speedup_high
    FROM speedups
    WHERE device = 'H100' AND clock = 'gpu' AND baseline = 'eager' AND NOT noisy
    QUALIFY row_number() OVER (
        PARTITION BY kernel_id, task_id, "precision" ORDER BY measured_at DESC, session_id
    ) = 1
)
SELECT
    judged."precision" AS policy,
    count(*) AS claims,
    count(*) FILTER (WHERE NOT judged.correct) AS not_correct,
    count(measured.speedup) FILTER (WHERE judged.correct) AS quiet,
    count(*) FILTER (WHERE judged.correct AND measured.speedup_high < 0.9 * claims.speedup) AS slower,
    count(*) FILTER (WHERE judged.correct AND measured.speedup_low > 1.1 * claims.speedup) AS exceeded,
    round(median(claims.speedup) FILTER (WHERE judged.correct AND measured.speedup > 0), 3)
        AS median_claimed,
    round(median(measured.speedup) FILTER (WHERE judged.correct), 3) AS median_measured
FROM current_claims AS claims
INNER JOIN judged ON judged.kernel_id = claims.kernel_id AND judged.task_id = claims.task_id
LEFT JOIN measured
    ON
        measured.kernel_id = judged.kernel_id AND measured.task_id = judged.task_id
        AND measured."precision" = judged."precision"
WHERE claims.gpu = 'H100' AND claims.baseline = 'eager' AND claims.metric = 'speedup'
GROUP BY judged."precision"
ORDER BY judged."precision"
