-- One row per kernel of one Python file that was written for a numbered task of a suite, with what we
-- found on a device. Speedups are pooled over the sessions that may be ranked. Times are
-- those of the newest of them, in milliseconds.
-- Parameters: suite, suite_revision, device, policy (NULL for every policy).
WITH attempts AS (
    SELECT generations.task_id, generations.kernel_id, min(generations.policy_id) AS policy_id
    FROM generations
    INNER JOIN policies ON policies.policy_id = generations.policy_id
    WHERE generations.kernel_id IS NOT NULL
        AND ($policy IS NULL OR $policy IN (policies.policy_id, policies."name"))
    GROUP BY generations.task_id, generations.kernel_id
),
judged AS (
    SELECT outcomes.kernel_id, outcomes.task_id, outcomes.status, outcomes.reason,
        outcomes.last_judged_at, evaluations.max_abs_error, evaluations.rel_l2_error
    FROM outcomes
    INNER JOIN evaluations
        ON
            evaluations.evaluation_id = outcomes.evaluation_id
            AND evaluations.kernel_id = outcomes.kernel_id
            AND evaluations.task_id = outcomes.task_id
    INNER JOIN scored_workloads
        ON
            scored_workloads.task_id = outcomes.task_id
            AND scored_workloads.workload_id = outcomes.workload_id
            AND scored_workloads.device = outcomes.device
    WHERE outcomes.device = $device
    QUALIFY row_number() OVER (
        PARTITION BY outcomes.kernel_id, outcomes.task_id ORDER BY outcomes.last_judged_at DESC
    ) = 1
),
scored AS (
    SELECT speedups.*
    FROM kernel_speedups AS speedups
    INNER JOIN scored_workloads
        ON
            scored_workloads.task_id = speedups.task_id
            AND scored_workloads.workload_id = speedups.workload_id
            AND scored_workloads.device = speedups.device
    WHERE speedups.device = $device
),
timed AS (
    SELECT
        scored.kernel_id, scored.task_id,
        any_value(kernel.samples_ms) AS samples_ms,
        max(baseline_arm.median_ms) FILTER (WHERE scored.baseline = 'eager') AS eager_ms,
        map_from_entries(list(row(scored.baseline, scored.speedup) ORDER BY scored.baseline))
            AS speedups
    FROM scored
    INNER JOIN clocked_timings AS kernel
        ON
            kernel.session_id = scored.session_id
            AND kernel.clock = scored.clock
            AND kernel.arm = 'kernel'
    INNER JOIN (
        SELECT session_id, clock, arm, list_median(samples_ms) AS median_ms
        FROM clocked_timings
    ) AS baseline_arm
        ON
            baseline_arm.session_id = scored.session_id
            AND baseline_arm.clock = scored.clock
            AND baseline_arm.arm = scored.baseline
    GROUP BY scored.kernel_id, scored.task_id
)
SELECT
    label.task_id, label."name" AS task, label."level", label.problem_id, label.family,
    tasks.code AS reference,
    attempts.kernel_id, attempts.policy_id, kernels.code, kernels.license, kernels.source,
    judged.status, judged.reason, judged.last_judged_at, judged.max_abs_error,
    judged.rel_l2_error,
    timed.samples_ms, timed.eager_ms, timed.speedups,
    quarantined.kernel_id IS NOT NULL AS quarantined,
    nonequivalent.kernel_id IS NULL AS equivalent,
    row_number() OVER (
        PARTITION BY label.task_id ORDER BY attempts.policy_id, attempts.kernel_id
    ) - 1 AS sample_id
FROM task_labels AS label
INNER JOIN tasks ON tasks.task_id = label.task_id
INNER JOIN attempts ON attempts.task_id = label.task_id
INNER JOIN kernels ON kernels.kernel_id = attempts.kernel_id
LEFT JOIN judged
    ON judged.kernel_id = attempts.kernel_id AND judged.task_id = attempts.task_id
LEFT JOIN timed ON timed.kernel_id = attempts.kernel_id AND timed.task_id = attempts.task_id
LEFT JOIN quarantined ON quarantined.kernel_id = attempts.kernel_id
LEFT JOIN nonequivalent
    ON nonequivalent.kernel_id = attempts.kernel_id AND nonequivalent.task_id = attempts.task_id
WHERE label.suite = $suite AND label.suite_revision = $suite_revision
    AND kernels.entry_point = 'ModelNew' AND kernels.other_files IS NULL
ORDER BY label."level", label.problem_id, label."name", sample_id
