-- One row per side, shape and setting that has a kernel to compare: its sessions, pooled.
-- Sessions pool as in pooled_speedups: each weighs 1 / (error^2 + spread^2), and those of two
-- evaluators, versions or numbers of threads never mix. Of an author's kernels, the one with the
-- highest lower bound is compared. Otherwise every kernel is, with itself.
WITH weighted AS (
    SELECT
        *,
        CASE WHEN $by <> 'author' THEN kernel_id END AS same_kernel_id,
        (1 / greatest(error ** 2 + spread ** 2, 1e-9))::DECIMAL(38, 12) AS weight
    FROM _sessions
    ANTI JOIN quarantined ON quarantined.kernel_id = _sessions.kernel_id
    ANTI JOIN nonequivalent
        ON
            nonequivalent.kernel_id = _sessions.kernel_id
            AND nonequivalent.task_id = _sessions.task_id
    ANTI JOIN unheld
        ON unheld.kernel_id = _sessions.kernel_id AND unheld.task_id = _sessions.task_id
),
pooled AS (
    SELECT
        side, task_id, workload_id, kernel_id, same_kernel_id, device, baseline, clock,
        "precision", evaluator, evaluator_version, threads,
        count(*) AS sessions,
        max(measured_at) AS last_measured_at,
        1 / sqrt(sum(weight)::DOUBLE) AS error,
        sum((weight * ln(speedup))::DECIMAL(38, 12))::DOUBLE / sum(weight)::DOUBLE AS log_speedup,
        exp(sum((weight * ln(kernel_ms))::DECIMAL(38, 12))::DOUBLE / sum(weight)::DOUBLE)
            AS kernel_ms
    FROM weighted
    GROUP BY
        side, task_id, workload_id, kernel_id, same_kernel_id, device, baseline, clock,
        "precision", evaluator, evaluator_version, threads
    QUALIFY row_number() OVER (
        PARTITION BY
            side, task_id, workload_id, kernel_id, device, baseline, clock, "precision"
        ORDER BY last_measured_at DESC, evaluator, evaluator_version DESC, threads
    ) = 1
)
SELECT *
FROM pooled
QUALIFY row_number() OVER (
    PARTITION BY
        side, task_id, workload_id, same_kernel_id, device, baseline, clock, "precision"
    ORDER BY log_speedup - 1.96 * error DESC, kernel_id
) = 1
