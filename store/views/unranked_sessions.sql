-- One row per timing session and clock that ranks nothing by that clock, with the reason.
-- reason is the first of these that applies: the evaluation does not count, because a newer version
-- of its evaluator or this lake itself has judged the kernel, or because its protocol is training;
-- the kernel is wrong, computes another function than the task (nonequivalent), or is quarantined;
-- the task is weak (weak_tasks); other work ran on the host (contended); the answers of timed calls
-- were not checked (unverified); the session is noisy (session_arms). A session without a row may
-- still not rank, because a newer one replaces it (newest_speedups).
WITH counted AS (
    SELECT
        session_id, clock, kernel_id, task_id,
        bool_and(correct) AS correct,
        bool_and(noisy) AS noisy
    FROM speedups
    GROUP BY session_id, clock, kernel_id, task_id
),
judged AS (
    SELECT
        sessions.session_id, sessions.clock, sessions.evaluation_id, sessions.kernel_id,
        sessions.task_id,
        CASE
            WHEN counted.session_id IS NULL THEN 'its evaluation does not count'
            WHEN NOT counted.correct THEN 'the kernel is wrong'
            WHEN nonequivalent.kernel_id IS NOT NULL THEN 'computes another function than the task'
            WHEN quarantined.kernel_id IS NOT NULL THEN 'the kernel is quarantined'
            WHEN weak_tasks.task_id IS NOT NULL THEN 'the task is weak'
            WHEN evaluations.contended THEN 'contended: other work ran on the host'
            WHEN evaluations.unverified THEN 'answers of timed calls were not checked'
            WHEN counted.noisy THEN 'noisy'
        END AS reason
    FROM clocked_timings AS sessions
    LEFT JOIN counted
        ON
            counted.session_id = sessions.session_id
            AND counted.clock = sessions.clock
            AND counted.kernel_id = sessions.kernel_id
            AND counted.task_id = sessions.task_id
    LEFT JOIN counted_evaluations AS evaluations
        ON
            evaluations.evaluation_id = sessions.evaluation_id
            AND evaluations.kernel_id = sessions.kernel_id
            AND evaluations.task_id = sessions.task_id
    LEFT JOIN nonequivalent
        ON
            nonequivalent.kernel_id = sessions.kernel_id
            AND nonequivalent.task_id = sessions.task_id
    LEFT JOIN quarantined ON quarantined.kernel_id = sessions.kernel_id
    LEFT JOIN weak_tasks ON weak_tasks.task_id = sessions.task_id
    WHERE sessions.arm = 'kernel'
)
SELECT session_id, clock, evaluation_id, kernel_id, task_id, reason
FROM judged
WHERE reason IS NOT NULL
