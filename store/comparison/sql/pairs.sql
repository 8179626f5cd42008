-- One row per pair: what A and B measured at one shape of a task, by the same rules.
-- Both sides have the same device (unless devices are compared), baseline, clock, precision and
-- number of threads, and unless authors are compared, the same kernel. ratio is B's speedup over
-- A's; a kernel beside itself in one session is exactly as fast.
SELECT
    names.task,
    workloads."name" AS workload,
    exp(b.log_speedup - a.log_speedup) AS ratio,
    CASE
        WHEN $by = 'author' AND a.kernel_id = b.kernel_id THEN 0.0
        ELSE a.error ** 2 + b.error ** 2
    END AS variance,
    exp(b.log_speedup - a.log_speedup - 1.96 * sqrt(variance)) AS ratio_low,
    exp(b.log_speedup - a.log_speedup + 1.96 * sqrt(variance)) AS ratio_high,
    exp(a.log_speedup) AS speedup_a,
    exp(b.log_speedup) AS speedup_b,
    a.sessions AS sessions_a,
    b.sessions AS sessions_b,
    coalesce($attempts, tried_a.attempts) AS attempts_a,
    coalesce($attempts, tried_b.attempts) AS attempts_b,
    a.kernel_ms AS kernel_ms_a,
    b.kernel_ms AS kernel_ms_b,
    a.kernel_id AS kernel_id_a,
    b.kernel_id AS kernel_id_b,
    a.device, a.baseline, a.clock, a."precision", a.threads,
    a.evaluator_version AS judge_version_a,
    b.evaluator_version AS judge_version_b,
    names.suite, names.suite_revision, names."level", names.family,
    a.workload_id, a.task_id
FROM _measured AS a
INNER JOIN _measured AS b
    ON
        b.task_id = a.task_id
        AND b.workload_id = a.workload_id
        AND b.baseline = a.baseline
        AND b.clock = a.clock
        AND b."precision" = a."precision"
        AND b.same_kernel_id IS NOT DISTINCT FROM a.same_kernel_id
        AND b.device IS NOT DISTINCT FROM a.device
        AND b.threads IS NOT DISTINCT FROM a.threads
        AND ($by <> 'judge-version' OR b.evaluator = a.evaluator)
INNER JOIN task_names AS names ON names.task_id = a.task_id
INNER JOIN workloads ON workloads.workload_id = a.workload_id
ANTI JOIN weak_tasks ON weak_tasks.task_id = a.task_id
LEFT JOIN (SELECT DISTINCT side, task_id, attempts FROM _attempted) AS tried_a
    ON tried_a.task_id = a.task_id AND tried_a.side = 'a'
LEFT JOIN (SELECT DISTINCT side, task_id, attempts FROM _attempted) AS tried_b
    ON tried_b.task_id = a.task_id AND tried_b.side = 'b'
WHERE
    a.side = 'a'
    AND b.side = 'b'
    AND (
        $attempts IS NULL
        OR (tried_a.attempts >= $attempts AND tried_b.attempts >= $attempts)
    )
