-- One row per kernel, task, device and baseline with the kernel's techniques and its speedup.
-- techniques and technique_pairs read this view. A kernel without any technique counts as well.
-- Trivial tasks are left out (counted_speedups).
SELECT
    speeds.kernel_id,
    speeds.task_id,
    speeds.device,
    speeds.baseline,
    features.techniques,
    speeds.speedup
FROM counted_speedups AS speeds
INNER JOIN features ON features.kernel_id = speeds.kernel_id
