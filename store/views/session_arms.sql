-- One row per timing session, baseline and clock: the samples of the kernel and of the baseline.
-- The two arms are of one evaluation, workload, device, state of the cache, and origin, and have at
-- least one block in common. An arm that a session has twice by a clock gives several rows, none of
-- which counts. unresolved: the baseline is too short for the clock, so that no figure follows.
--
-- kernel_ms: samples of the kernel in the order of its blocks, in ms per call
-- baseline_ms: samples of the baseline in the order of its blocks, in ms per call
-- complete: whether both arms have the same blocks
SELECT
    kernel.session_id, kernel.evaluation_id, kernel.kernel_id, kernel.task_id,
    kernel.workload_id, kernel.device_id, baseline.arm AS baseline, kernel.clock,
    kernel.confirmed,
    kernel.disturbed OR baseline.disturbed AS disturbed,
    baseline.unresolved,
    kernel.created_at AS measured_at,
    kernel.samples_ms AS kernel_ms,
    baseline.samples_ms AS baseline_ms,
    kernel.blocks AS kernel_blocks,
    baseline.blocks AS baseline_blocks,
    kernel.blocks = baseline.blocks AS complete,
    kernel.control_ratios
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
