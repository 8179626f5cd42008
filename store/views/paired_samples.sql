-- One row per timing session, baseline and clock: both arms' samples, paired by block.
-- The pairs are those of session_speedups, which computes their ratios. Element i of both lists
-- comes from the same block. Blocks in which one of the two arms has no sample are left out. A
-- session with fewer than 7 pairs is disturbed. An arm that a session has twice by a clock is left
-- out. unresolved: the baseline is too short for the clock, so that no figure follows.
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
    confirmed,
    disturbed OR len(baseline_samples) < 7 AS disturbed,
    unresolved
FROM session_arms
QUALIFY count(*) OVER (
    PARTITION BY session_id, evaluation_id, kernel_id, task_id, baseline, clock
) = 1
