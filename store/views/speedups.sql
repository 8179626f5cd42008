-- One row per timing session, baseline and clock: how many times faster the kernel ran.
-- The figures are those of session_speedups, of evaluations that count (counted_evaluations). The
-- session ran at the workload of its evaluation, and on its device or another one of the same name
-- and kind, such as another GPU of the same machine. disturbed: the session is disturbed, or its
-- evaluation is contended or unverified, so that it ranks nothing. Kernels that compute another function than
-- the task (nonequivalent) are not left out.
--
-- key columns: kernel_id, device, baseline, clock, speedup, speedup_low, speedup_high, n, disturbed
WITH failures AS (
    -- A failure counts for the precision of its verdict, and a rejected cheat for all of them.
    SELECT
        kernel_id, task_id, workload_id, device_id,
        list("precision") AS precisions,
        bool_or(status = 'rejected') AS rejected
    FROM verdicts
    WHERE NOT correct
    GROUP BY kernel_id, task_id, workload_id, device_id
)
SELECT
    sessions.session_id,
    sessions.evaluation_id,
    evaluations.task_id,
    evaluations.workload_id,
    evaluations.kernel_id,
    evaluations.device_id,
    verdicts.device,
    evaluations.evaluator,
    evaluations.evaluator_version,
    evaluations."precision",
    evaluations.threads,
    sessions.baseline,
    sessions.clock,
    sessions.n,
    sessions.kernel_ms,
    sessions.baseline_ms,
    sessions.speedup,
    sessions.speedup_low,
    sessions.speedup_high,
    sessions.error,
    sessions.spread,
    verdicts.status,
    -- One evaluator that finds the kernel wrong is enough, be it another one than the session's.
    NOT coalesce(
        failures.rejected OR list_contains(failures.precisions, evaluations."precision"), false
    ) AS correct,
    sessions.confirmed,
    sessions.disturbed OR evaluations.contended OR evaluations.unverified AS disturbed,
    sessions.unresolved,
    sessions.measured_at
FROM session_speedups AS sessions
INNER JOIN counted_evaluations AS evaluations
    ON
        evaluations.evaluation_id = sessions.evaluation_id
        AND evaluations.kernel_id = sessions.kernel_id
        AND evaluations.task_id = sessions.task_id
        AND evaluations.workload_id = sessions.workload_id
INNER JOIN devices AS judges ON judges.device_id = evaluations.device_id
INNER JOIN devices AS timers
    ON
        timers.device_id = sessions.device_id
        AND timers."name" = judges."name"
        AND timers.kind = judges.kind
-- Equality of the version leaves out sessions of superseded versions of the evaluator.
INNER JOIN verdicts
    ON
        verdicts.kernel_id = evaluations.kernel_id
        AND verdicts.task_id = evaluations.task_id
        AND verdicts.workload_id = evaluations.workload_id
        AND verdicts.device_id = evaluations.device_id
        AND verdicts.evaluator = evaluations.evaluator
        AND verdicts."precision" = evaluations."precision"
        AND verdicts.evaluator_version = evaluations.evaluator_version
LEFT JOIN failures
    ON
        failures.kernel_id = evaluations.kernel_id
        AND failures.task_id = evaluations.task_id
        AND failures.workload_id = evaluations.workload_id
        AND failures.device_id = evaluations.device_id
WHERE evaluations.status <> 'evaluator_error'
