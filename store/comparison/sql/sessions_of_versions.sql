-- One row per side ('a' or 'b') and timing session that counts for it, by version of the judge.
-- As in speedups, one failure outweighs any pass, but only among evaluations of the same version:
-- speedups has no sessions of superseded ones.
WITH judged AS (
    SELECT
        *,
        bool_and(status = 'correct') OVER (
            PARTITION BY
                kernel_id, task_id, workload_id, device_id, evaluator, evaluator_version,
                "precision"
        ) AS correct
    FROM counted_evaluations
    WHERE evaluator_version IN ($a::INTEGER, $b::INTEGER) AND status <> 'evaluator_error'
)
SELECT
    CASE WHEN judged.evaluator_version = $a::INTEGER THEN 'a' ELSE 'b' END AS side,
    judged.task_id, judged.workload_id, judged.kernel_id, timers."name" AS device,
    sessions.baseline, sessions.clock, judged."precision", judged.evaluator,
    judged.evaluator_version, judged.threads,
    sessions.speedup, sessions.kernel_ms, sessions.error, sessions.spread, sessions.measured_at
FROM session_speedups AS sessions
INNER JOIN judged
    ON
        judged.evaluation_id = sessions.evaluation_id
        AND judged.kernel_id = sessions.kernel_id
        AND judged.task_id = sessions.task_id
        AND judged.workload_id = sessions.workload_id
INNER JOIN devices AS judges ON judges.device_id = judged.device_id
INNER JOIN devices AS timers
    ON
        timers.device_id = sessions.device_id
        AND timers."name" = judges."name"
        AND timers.kind = judges.kind
WHERE
    judged.correct
    AND NOT judged.contended
    AND NOT judged.unverified
    AND NOT sessions.disturbed
    AND NOT sessions.unresolved
