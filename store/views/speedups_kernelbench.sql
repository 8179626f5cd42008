-- One row per timing session, baseline and cache mode: KernelBench's speedup, from stored samples.
-- Mean time of the baseline over mean time of the kernel; blocks are not paired, and one slow
-- sample counts in full.
SELECT
    session_id, evaluation_id, kernel_id, task_id, workload_id, device_id, baseline, cache, noisy,
    len(kernel_samples) AS n,
    list_avg(baseline_samples) AS baseline_ms,
    list_avg(kernel_samples) AS kernel_ms,
    list_avg(baseline_samples) / list_avg(kernel_samples) AS speedup,
    measured_at
FROM paired_samples
