-- One row per timing session, baseline and clock: both arms' samples, paired by block.
-- The pairs are those of session_speedups. Element i of both lists comes from the same block. Blocks
-- in which one of the two arms has no sample are left out. A session with fewer than 7 pairs is
-- noisy. Every view that computes a figure from a session's samples reads this one.
WITH sessions AS (
    SELECT
        kernel.session_id, kernel.evaluation_id, kernel.kernel_id, kernel.task_id,
        kernel.workload_id, kernel.device_id, baseline.arm AS baseline, kernel.clock,
        kernel.noisy OR baseline.noisy AS noisy,
        kernel.created_at AS measured_at,
        kernel.samples_ms AS kernel_ms,
        baseline.samples_ms AS baseline_ms,
        kernel.blocks AS kernel_blocks,
        baseline.blocks AS baseline_blocks,
        kernel.blocks = baseline.blocks AS complete
    FROM clocked_timings AS kernel
    INNER JOIN clocked_timings AS baseline
        ON
            baseline.session_id = kernel.session_id
            AND baseline.clock = kernel.clock
            -- A filter on one of these ids reaches both scans.
            AND baseline.kernel_id = kernel.kernel_id
            AND baseline.task_id = kernel.task_id
            AND baseline.evaluation_id = kernel.evaluation_id
            AND baseline.workload_id = kernel.workload_id
            AND baseline.device_id = kernel.device_id
            AND baseline.cache = kernel.cache
            AND baseline.origin IS NOT DISTINCT FROM kernel.origin
    WHERE
        kernel.arm = 'kernel'
        AND baseline.arm <> 'kernel'
        AND (
            kernel.blocks = baseline.blocks OR list_has_any(kernel.blocks, baseline.blocks)
        )
)
SELECT
    session_id, evaluation_id, kernel_id, task_id, workload_id, device_id, baseline, clock,
    measured_at,
    CASE
        WHEN complete THEN kernel_ms
        ELSE list_filter(
            kernel_ms, lambda ms, i: list_contains(baseline_blocks, kernel_blocks[i])
        )
    END AS kernel_samples,
    CASE
        WHEN complete THEN baseline_ms
        ELSE list_transform(
            list_filter(kernel_blocks, lambda block: list_contains(baseline_blocks, block)),
            lambda block: baseline_ms[list_position(baseline_blocks, block)]
        )
    END AS baseline_samples,
    noisy OR len(baseline_samples) < 7 AS noisy
FROM sessions
QUALIFY count(*) OVER (
    PARTITION BY session_id, evaluation_id, kernel_id, task_id, baseline, clock
) = 1
