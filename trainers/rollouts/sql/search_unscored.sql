-- Why kernels that this lake attempted in $namespaces have no score on $device over $baseline, by
-- $clock or by the clock that ranks: reason and kernels.
WITH written AS (
    SELECT DISTINCT kernel_id, task_id
    FROM generations
    WHERE
        namespace IN (SELECT unnest($namespaces))
        AND kernel_id IS NOT NULL
        AND origin IS NULL
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
    SELECT
        sessions.kernel_id, sessions.task_id,
        bool_and(sessions.disturbed OR sessions.unresolved) AS ranks_nothing
    FROM speedups AS sessions
    INNER JOIN default_clocks
        ON
            default_clocks.task_id = sessions.task_id
            AND default_clocks.workload_id = sessions.workload_id
            AND default_clocks.device = sessions.device
            AND default_clocks.baseline = sessions.baseline
            AND default_clocks."precision" = sessions."precision"
    SEMI JOIN written
        ON written.kernel_id = sessions.kernel_id AND written.task_id = sessions.task_id
    WHERE
        sessions.device = $device
        AND sessions.baseline = $baseline
        AND sessions.clock = coalesce($clock, default_clocks.clock)
    GROUP BY sessions.kernel_id, sessions.task_id
)
SELECT
    CASE
        WHEN judged.correct IS NULL THEN 'no verdict on ' || $device
        WHEN NOT judged.correct THEN 'wrong'
        WHEN measured.ranks_nothing IS NULL THEN 'not timed against ' || $baseline
        WHEN measured.ranks_nothing THEN 'only sessions that rank nothing'
        ELSE 'withheld, another function or wrong elsewhere'
    END AS reason,
    count(*) AS kernels
FROM written
LEFT JOIN judged ON judged.kernel_id = written.kernel_id AND judged.task_id = written.task_id
LEFT JOIN measured
    ON measured.kernel_id = written.kernel_id AND measured.task_id = written.task_id
GROUP BY reason
ORDER BY kernels DESC, reason
