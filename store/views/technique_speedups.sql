-- One row per kernel, task, device and baseline with the kernel's techniques and its speedup.
-- techniques and technique_pairs read this view. A kernel without any technique counts as well.
-- Weak tasks are left out.
SELECT
    scored_speedups.kernel_id,
    scored_speedups.task_id,
    scored_speedups.device,
    scored_speedups.baseline,
    features.techniques,
    scored_speedups.speedup
FROM scored_speedups
INNER JOIN features ON features.kernel_id = scored_speedups.kernel_id
ANTI JOIN weak_tasks ON weak_tasks.task_id = scored_speedups.task_id
