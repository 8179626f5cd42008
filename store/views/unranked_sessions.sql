-- One row per timing session and clock that ranks nothing by that clock, with the reason.
-- reason is the first of these that applies: the evaluation does not count, because a newer
-- version of its evaluator or this lake itself has judged the kernel, or because its protocol
-- is training or shape; the kernel is wrong, computes another function than the task
-- (nonequivalent), or is quarantined; the task is trivial (weak_tasks); other work ran on the host
-- (contended); the answers of timed calls were not checked (unverified); a flag of the verdict
-- keeps the kernel out of rankings; every baseline is too short for the clock; the samples are
-- impossible or too few; the session is disturbed (clocked_timings). A session without a row
-- may still not rank, because one by another evaluator is newer (pooled_speedups).
--
-- key columns: kernel_id, device, clock, reason, session_id
-- reason: why the session ranks nothing by this clock
WITH counted AS (
    SELECT
        session_id, clock, kernel_id, task_id,
        bool_and(correct) AS correct,
        bool_and(disturbed OR unresolved) AS ranks_nothing,
        bool_and(unresolved) AS is_short,
        max(n) AS n
    FROM speedups
    GROUP BY session_id, clock, kernel_id, task_id
),
judged AS (
    SELECT
        sessions.session_id, sessions.clock, sessions.evaluation_id, sessions.kernel_id,
        sessions.task_id, devices."name" AS device, sessions.created_at AS measured_at,
        CASE
            WHEN counted.session_id IS NULL THEN 'its evaluation does not count'
            WHEN NOT counted.correct THEN 'the kernel is wrong'
            WHEN nonequivalent.kernel_id IS NOT NULL THEN 'computes another function than the task'
            WHEN quarantined.kernel_id IS NOT NULL THEN 'the kernel is quarantined'
            WHEN weak_tasks.task_id IS NOT NULL THEN 'the task is trivial'
            WHEN evaluations.contended THEN 'contended: other work ran on the host'
            WHEN evaluations.unverified THEN 'answers of timed calls were not checked'
            WHEN NOT counted.ranks_nothing THEN NULL
            WHEN list_contains(evaluations.flags, 'unconfirmed_win')
                THEN 'a surprising win that no second session confirmed'
            WHEN list_contains(evaluations.flags, 'shares_device')
                THEN 'another process of the kernel held the GPU'
            WHEN list_contains(evaluations.flags, 'more_threads')
                THEN 'uses more CPU time than its threads allow'
            WHEN list_contains(evaluations.flags, 'precision_below_policy')
                THEN 'rounds more than the precision allows'
            WHEN list_contains(evaluations.flags, 'fewer_baselines')
                THEN 'timed against eager alone: the memory did not hold all baselines'
            WHEN list_contains(evaluations.flags, 'not_frozen')
                THEN 'another author''s kernel on a machine without control groups'
            WHEN list_contains(evaluations.flags, 'custom_required')
                THEN 'library kernels take all device time'
            WHEN counted.is_short THEN 'too short for the clock'
            WHEN sessions.impossible IS NOT NULL THEN 'impossible: ' || sessions.impossible
            WHEN counted.n < 7 THEN 'fewer than 7 pairs of samples'
            WHEN list_contains(evaluations.flags, 'baseline_drift')
                THEN 'eager''s time changed once the kernel''s process had ended'
            ELSE 'disturbed: eager differs from eager, or the device was slowed down'
        END AS reason
    FROM clocked_timings AS sessions
    LEFT JOIN devices ON devices.device_id = sessions.device_id
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
SELECT session_id, clock, evaluation_id, kernel_id, task_id, device, measured_at, reason
FROM judged
WHERE reason IS NOT NULL
