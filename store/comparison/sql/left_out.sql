-- One row per task of A or B that no compared pair has: why, and what either measured there.
-- The reason is the first one that applies. speedup_a and speedup_b are in the setting that is
-- compared; failed says that a side which tried the task has no correct kernel for it.
WITH judged AS (
    SELECT
        CASE
            WHEN $by = 'author' THEN attempted.of_side
            WHEN $a = CASE $by
                WHEN 'host' THEN devices.host
                WHEN 'device' THEN devices."name"
                ELSE evaluations.evaluator_version::VARCHAR
            END THEN 'a'
            WHEN $b = CASE $by
                WHEN 'host' THEN devices.host
                WHEN 'device' THEN devices."name"
                ELSE evaluations.evaluator_version::VARCHAR
            END THEN 'b'
        END AS side,
        evaluations.task_id,
        evaluations.kernel_id,
        -- As in verdicts: the newest version decides, and one failure outweighs any pass.
        max(
            2 * CAST(evaluations.evaluator_version AS BIGINT)
            + CAST(evaluations.status <> 'correct' AS BIGINT)
        ) % 2 = 0 AS correct
    FROM counted_evaluations AS evaluations
    INNER JOIN devices ON devices.device_id = evaluations.device_id
    LEFT JOIN (
        SELECT DISTINCT side AS of_side, task_id, kernel_id FROM _attempted
    ) AS attempted
        ON
            attempted.kernel_id = evaluations.kernel_id
            AND attempted.task_id = evaluations.task_id
    WHERE side IS NOT NULL AND evaluations.status <> 'evaluator_error'
    GROUP BY ALL
),
tried AS (
    SELECT
        side, task_id, max(attempts) AS attempts,
        bool_or(is_compared) AS is_compared,
        -- NULL where kernels still wait for a verdict.
        CASE WHEN bool_or(judged) OR NOT bool_or(has_kernel) THEN bool_or(correct) END AS solved
    FROM (
        SELECT
            side, task_id, attempts, kernel_id IS NOT NULL AS has_kernel, false AS judged,
            true AS is_compared, false AS correct
        FROM _attempted
        UNION ALL
        SELECT
            judged.side, judged.task_id, NULL, true, true, judged.is_compared,
            judged.correct
            AND judged.is_compared
            AND quarantined.kernel_id IS NULL
            AND nonequivalent.kernel_id IS NULL
            AND unheld.kernel_id IS NULL
        FROM (
            SELECT
                *,
                $by = 'author' OR count(*) OVER (PARTITION BY kernel_id, task_id) = 2
                    AS is_compared
            FROM judged
        ) AS judged
        LEFT JOIN quarantined ON quarantined.kernel_id = judged.kernel_id
        LEFT JOIN nonequivalent
            ON
                nonequivalent.kernel_id = judged.kernel_id
                AND nonequivalent.task_id = judged.task_id
        LEFT JOIN unheld
            ON unheld.kernel_id = judged.kernel_id AND unheld.task_id = judged.task_id
    )
    GROUP BY side, task_id
),
measured AS (
    SELECT
        side, task_id,
        exp(avg(log_speedup) FILTER (
            WHERE
            device IS NOT DISTINCT FROM $device
            AND baseline = $baseline
            AND clock = $clock
            AND "precision" = $precision
            AND threads IS NOT DISTINCT FROM $threads
        )) AS speedup
    FROM _measured
    GROUP BY side, task_id
)
SELECT
    names.task,
    CASE
        WHEN weak_tasks.task_id IS NOT NULL THEN 'trivial task'
        WHEN a.task_id IS NULL AND $by = 'author' THEN 'not tried by A'
        WHEN b.task_id IS NULL AND $by = 'author' THEN 'not tried by B'
        WHEN a.task_id IS NULL THEN 'not judged by A'
        WHEN b.task_id IS NULL THEN 'not judged by B'
        WHEN a.attempts < $attempts THEN 'fewer attempts by A'
        WHEN b.attempts < $attempts THEN 'fewer attempts by B'
        WHEN NOT a.is_compared THEN 'no kernel in common'
        WHEN a.solved IS NULL THEN 'no verdict on a kernel of A'
        WHEN b.solved IS NULL THEN 'no verdict on a kernel of B'
        WHEN NOT a.solved AND NOT b.solved THEN 'no correct kernel of either'
        WHEN NOT a.solved THEN 'no correct kernel of A'
        WHEN NOT b.solved THEN 'no correct kernel of B'
        WHEN of_a.task_id IS NULL THEN 'no session of A that ranks'
        WHEN of_b.task_id IS NULL THEN 'no session of B that ranks'
        WHEN paired.task_id IS NULL THEN 'no shape and setting in common'
        ELSE 'left out by --where, or another setting'
    END AS reason,
    reason LIKE 'no correct kernel%' AS failed,
    of_a.speedup AS speedup_a,
    of_b.speedup AS speedup_b,
    names.task_id
FROM (FROM tried WHERE side = 'a') AS a
FULL JOIN (FROM tried WHERE side = 'b') AS b ON b.task_id = a.task_id
INNER JOIN task_names AS names ON names.task_id = coalesce(a.task_id, b.task_id)
LEFT JOIN weak_tasks ON weak_tasks.task_id = names.task_id
LEFT JOIN measured AS of_a ON of_a.task_id = names.task_id AND of_a.side = 'a'
LEFT JOIN measured AS of_b ON of_b.task_id = names.task_id AND of_b.side = 'b'
LEFT JOIN (SELECT DISTINCT task_id FROM _all_pairs) AS paired ON paired.task_id = names.task_id
ANTI JOIN _compared ON _compared.task_id = names.task_id
ORDER BY reason, names.suite, names."level", names.problem_id, names.task
