-- Why kernels attempted in $namespaces have no score on $device over $baseline: reason and kernels.
WITH written AS (
    SELECT DISTINCT kernel_id, task_id
    FROM generations
    WHERE namespace IN (SELECT unnest($namespaces)) AND kernel_id IS NOT NULL
),
judged AS (
    SELECT kernel_id, task_id, bool_and(correct) AS correct
    FROM outcomes
    SEMI JOIN written
        ON written.kernel_id = outcomes.kernel_id AND written.task_id = outcomes.task_id
    WHERE device = $device
    GROUP BY kernel_id, task_id
),
measured AS (
    SELECT sessions.kernel_id, sessions.task_id, bool_and(sessions.noisy) AS noisy
    FROM session_speedups AS sessions
    INNER JOIN evaluations
        ON
            evaluations.evaluation_id = sessions.evaluation_id
            AND evaluations.kernel_id = sessions.kernel_id
            AND evaluations.task_id = sessions.task_id
    INNER JOIN devices ON devices.device_id = evaluations.device_id
    SEMI JOIN written
        ON written.kernel_id = sessions.kernel_id AND written.task_id = sessions.task_id
    WHERE devices."name" = $device AND sessions.baseline = $baseline
    GROUP BY sessions.kernel_id, sessions.task_id
)
SELECT
    CASE
        WHEN judged.correct IS NULL THEN 'no verdict on ' || $device
        WHEN NOT judged.correct THEN 'wrong'
        WHEN measured.noisy IS NULL THEN 'not timed against ' || $baseline
        WHEN measured.noisy THEN 'only noisy sessions'
        ELSE 'withheld, another function or wrong elsewhere'
    END AS reason,
    count(*) AS kernels
FROM written
LEFT JOIN judged ON judged.kernel_id = written.kernel_id AND judged.task_id = written.task_id
LEFT JOIN measured
    ON measured.kernel_id = written.kernel_id AND measured.task_id = written.task_id
GROUP BY reason
ORDER BY kernels DESC, reason
