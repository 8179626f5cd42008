-- One row per generation in `wanted` (generation_id): what the lake knows of it on one device.
-- correct is NULL where the kernel has no verdict there, false where there is no kernel, where any
-- workload has a failing verdict, where the kernel was found wrong on another device (pulled
-- verdicts of kernels judged here do not count, outcomes.elsewhere), where no dataset may hold it (withheld:
-- quarantined, strongly suspected, rejected, or a copy of such a one), and,
-- unless $include_nonequivalent, where it is another function than the task's.
-- Speedups are pooled over the sessions that may be ranked, at the workload that scores the task, by
-- the clock that ranks or by $clock. By the rules of other systems they are those of the newest of
-- these sessions: eager_speedup, eager_cuda_l1, compile_speedup …
-- evaluation_id is the evaluation that decides: the newest failing one on the device, else the newest
-- that found the kernel wrong on another device, else the newest pass on the device.
-- Where the full protocol has not judged a kernel on the device, its verdict and speedups are those
-- of the protocol training.
-- held_back: the kernel is a surprising win, as in surprising_wins.sql of the audit, and has an undecided
-- finding with a confidence of $doubt or more.
-- $kernels says again which kernels these are, comma-separated, where they are few: a condition on
-- a constant reaches the tables below views, which a join does not. $baselines is replaced by the
-- catalog's baselines, as literals.
WITH attempts AS (
    SELECT generation_id, kernel_id, task_id
    FROM generations
    SEMI JOIN wanted ON wanted.generation_id = generations.generation_id
),
made AS (
    SELECT DISTINCT kernel_id, task_id
    FROM attempts
    WHERE kernel_id IS NOT NULL
),
another_function AS (
    SELECT kernel_id, task_id FROM nonequivalent
    UNION
    SELECT kernel_id, task_id FROM training_outcomes WHERE NOT equivalent
),
judged AS (
    SELECT
        outcomes.kernel_id, outcomes.task_id,
        bool_and(outcomes.correct) FILTER (WHERE outcomes.device = $device) AS correct,
        coalesce(
            bool_or(outcomes.status IN ('incorrect', 'rejected') AND NOT outcomes.elsewhere), false
        ) AS wrong,
        max({
            'failed': NOT outcomes.correct, 'last_judged_at': outcomes.last_judged_at,
            'status': outcomes.status, 'reason': outcomes.reason
        }) FILTER (WHERE outcomes.device = $device) AS deciding,
        max({
            'failed': NOT outcomes.correct, 'here': outcomes.device = $device,
            'last_judged_at': outcomes.last_judged_at, 'evaluation_id': outcomes.evaluation_id
        }) FILTER (
            WHERE
                outcomes.device = $device
                OR (outcomes.status IN ('incorrect', 'rejected') AND NOT outcomes.elsewhere)
        ) AS evaluation
    FROM (
        SELECT
            kernel_id, task_id, device, correct, status, reason, evaluation_id, last_judged_at,
            elsewhere
        FROM outcomes
        UNION ALL
        SELECT
            kernel_id, task_id, device, correct, status, reason, evaluation_id, last_judged_at,
            false AS elsewhere
        FROM training_outcomes
    ) AS outcomes
    SEMI JOIN made
        ON made.kernel_id = outcomes.kernel_id AND made.task_id = outcomes.task_id
    WHERE ($kernels IS NULL OR list_contains(string_split($kernels, ','), outcomes.kernel_id))
    GROUP BY outcomes.kernel_id, outcomes.task_id
),
sessions AS (
    SELECT
        measured.kernel_id, measured.task_id, measured.session_id, measured.baseline,
        measured.clock, measured.speedup, measured.speedup_low
    FROM pooled_speedups AS measured
    INNER JOIN default_clocks
        ON
            default_clocks.task_id = measured.task_id
            AND default_clocks.workload_id = measured.workload_id
            AND default_clocks.device = measured.device
            AND default_clocks.baseline = measured.baseline
            AND default_clocks."precision" = measured."precision"
    INNER JOIN scored_workloads
        ON
            scored_workloads.task_id = measured.task_id
            AND scored_workloads.device = measured.device
            AND scored_workloads.workload_id = measured.workload_id
    SEMI JOIN made
        ON made.kernel_id = measured.kernel_id AND made.task_id = measured.task_id
    WHERE
        measured.device = $device
        AND measured.clock = coalesce($clock, default_clocks.clock)
        AND ($kernels IS NULL OR list_contains(string_split($kernels, ','), measured.kernel_id))
    UNION ALL
    SELECT kernel_id, task_id, session_id, baseline, clock, speedup, speedup_low
    FROM training_speedups
    WHERE
        device = $device
        AND ($clock IS NULL OR clock = $clock)
        AND ($kernels IS NULL OR list_contains(string_split($kernels, ','), kernel_id))
),
figures AS (
    SELECT
        sessions.kernel_id, sessions.task_id, sessions.baseline, sessions.speedup,
        sessions.speedup_low, bucketed.speedup AS cuda_l1, means.speedup AS kernelbench
    FROM sessions
    INNER JOIN speedups_cuda_l1 AS bucketed
        ON
            bucketed.session_id = sessions.session_id
            AND bucketed.baseline = sessions.baseline
            AND bucketed.clock = sessions.clock
            AND bucketed.kernel_id = sessions.kernel_id
            AND bucketed.task_id = sessions.task_id
    INNER JOIN speedups_kernelbench AS means
        ON
            means.session_id = sessions.session_id
            AND means.baseline = sessions.baseline
            AND means.kernel_id = sessions.kernel_id
            AND means.task_id = sessions.task_id
    WHERE
        ($kernels IS NULL OR list_contains(string_split($kernels, ','), bucketed.kernel_id))
        AND ($kernels IS NULL OR list_contains(string_split($kernels, ','), means.kernel_id))
),
measured AS (
    FROM figures
    PIVOT (
        max(speedup) AS speedup, max(speedup_low) AS low, max(cuda_l1) AS cuda_l1,
        max(kernelbench) AS kernelbench
        FOR baseline IN ($baselines)
        GROUP BY kernel_id, task_id
    )
),
-- The two fastest kernels of each task over eager, so that each kernel has a best other one.
fastest AS (
    SELECT speeds.task_id, speeds.kernel_id, speeds.speedup
    FROM kernel_speedups AS speeds
    SEMI JOIN made ON made.task_id = speeds.task_id
    WHERE speeds.device = $device AND speeds.baseline = 'eager' AND $doubt IS NOT NULL
    QUALIFY row_number() OVER (
        PARTITION BY speeds.task_id ORDER BY speeds.speedup DESC, speeds.kernel_id
    ) <= 2
),
doubted AS (
    SELECT measured.kernel_id, measured.task_id
    FROM measured
    LEFT JOIN fastest
        ON fastest.task_id = measured.task_id AND fastest.kernel_id <> measured.kernel_id
    SEMI JOIN (
        SELECT kernel_id
        FROM finding_standings
        WHERE decision IS NULL AND coalesce(confidence, 1) >= $doubt
    ) AS doubts ON doubts.kernel_id = measured.kernel_id
    GROUP BY measured.kernel_id, measured.task_id, measured.eager_speedup
    HAVING measured.eager_speedup > 3 OR measured.eager_speedup > 2 * max(fastest.speedup)
)
SELECT
    attempts.generation_id,
    attempts.kernel_id,
    attempts.task_id,
    CASE WHEN attempts.kernel_id IS NULL THEN 'no_kernel' ELSE judged.deciding.status END AS status,
    judged.deciding.reason AS reason,
    judged.evaluation.evaluation_id AS evaluation_id,
    withheld.kernel_id IS NOT NULL AS withheld,
    nonequivalent.kernel_id IS NOT NULL AS nonequivalent,
    CASE
        WHEN
            attempts.kernel_id IS NULL
            OR withheld.kernel_id IS NOT NULL
            OR judged.wrong
            OR (nonequivalent.kernel_id IS NOT NULL AND NOT $include_nonequivalent)
            THEN false
        ELSE judged.correct
    END AS correct,
    doubted.kernel_id IS NOT NULL AS held_back,
    measured.* EXCLUDE (kernel_id, task_id)
FROM attempts
LEFT JOIN withheld ON withheld.kernel_id = attempts.kernel_id
LEFT JOIN another_function AS nonequivalent
    ON
        nonequivalent.kernel_id = attempts.kernel_id
        AND nonequivalent.task_id = attempts.task_id
LEFT JOIN doubted
    ON doubted.kernel_id = attempts.kernel_id AND doubted.task_id = attempts.task_id
LEFT JOIN judged
    ON judged.kernel_id = attempts.kernel_id AND judged.task_id = attempts.task_id
LEFT JOIN measured
    ON measured.kernel_id = attempts.kernel_id AND measured.task_id = attempts.task_id
ORDER BY attempts.generation_id
