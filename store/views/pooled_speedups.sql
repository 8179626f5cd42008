-- One row per kernel, task, workload, device, baseline, clock and precision: its sessions that count, pooled.
-- A session counts if the kernel is correct, neither of its two arms is disturbed, its baseline is
-- not too short for the clock (unresolved), and its evaluation is not contended (speedups). Both
-- sessions of a confirmed win count. The sessions are those of the evaluator, version and number of
-- threads with the newest one: these never mix. All of them count and not the best one, so that
-- repeating a measurement until it is lucky gains nothing. speedup, kernel_ms and baseline_ms are
-- geometric means, in which each session weighs 1 / (error^2 + spread^2), the inverse of the
-- variance of the logarithm of its speedup. n is the number of pairs of samples of all sessions. The other columns
-- are those of the newest session. A kernel with one session has its figures. Kernels that compute
-- another function than the task are not left out; kernel_speedups marks them. The order is one
-- struct, so that DuckDB can compute a maximum per group and need not sort. Sums are decimal, so
-- that they do not depend on the order of the rows.
WITH weighted AS (
    SELECT *, (1 / greatest(error ** 2 + spread ** 2, 1e-9))::DECIMAL(38, 12) AS weight
    FROM speedups
    WHERE correct AND NOT disturbed AND NOT unresolved
),
pooled AS (
    SELECT
        kernel_id, task_id, workload_id, device, baseline, clock, "precision", evaluator,
        evaluator_version, threads,
        max({
            'measured_at': measured_at, 'session_id': session_id, 'evaluation_id': evaluation_id,
            'device_id': device_id, 'kernel_ms': kernel_ms, 'baseline_ms': baseline_ms,
            'speedup': speedup, 'low': speedup_low, 'high': speedup_high
        }) AS newest,
        count(*) AS sessions,
        sum(n)::BIGINT AS n,
        sum(weight)::DOUBLE AS weight,
        sum((weight * ln(kernel_ms))::DECIMAL(38, 12))::DOUBLE AS kernel,
        sum((weight * ln(baseline_ms))::DECIMAL(38, 12))::DOUBLE AS base,
        sum((weight * ln(speedup))::DECIMAL(38, 12))::DOUBLE AS ratio
    FROM weighted
    GROUP BY ALL
)
SELECT
    newest.session_id, newest.evaluation_id, task_id, workload_id, kernel_id,
    newest.device_id, device, evaluator, evaluator_version, "precision", threads,
    baseline, clock,
    sessions, n,
    CASE WHEN sessions = 1 THEN newest.kernel_ms ELSE exp(kernel / weight) END AS kernel_ms,
    CASE WHEN sessions = 1 THEN newest.baseline_ms ELSE exp(base / weight) END AS baseline_ms,
    CASE WHEN sessions = 1 THEN newest.speedup ELSE exp(ratio / weight) END AS speedup,
    CASE
        WHEN sessions = 1 THEN newest.low ELSE exp(ratio / weight - 1.96 / sqrt(weight))
    END AS speedup_low,
    CASE
        WHEN sessions = 1 THEN newest.high ELSE exp(ratio / weight + 1.96 / sqrt(weight))
    END AS speedup_high,
    newest.measured_at
FROM pooled
QUALIFY row_number() OVER (
    PARTITION BY kernel_id, task_id, workload_id, device, baseline, clock, "precision"
    ORDER BY newest DESC
) = 1
