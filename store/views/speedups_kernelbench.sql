-- One row per timing session and baseline: KernelBench's speedup, from stored samples.
-- speedup is the mean time of the baseline divided by the mean time of the kernel. Blocks are not
-- paired, so one slow sample counts in full. KernelBench times one call on an idle device, so the
-- view reads the clock latency; in a session without it, the clock that the device has (column
-- clock).
--
-- speedup: mean time of the baseline / mean time of the kernel (a ratio)
-- kernel_ms: mean time of the kernel, in ms per call
-- baseline_ms: mean time of the baseline, in ms per call
SELECT
    session_id, evaluation_id, kernel_id, task_id, workload_id, device_id, baseline, clock,
    confirmed, disturbed, unresolved,
    len(kernel_samples) AS n,
    CASE WHEN NOT unresolved THEN list_avg(baseline_samples) END AS baseline_ms,
    list_avg(kernel_samples) AS kernel_ms,
    CASE
        WHEN NOT unresolved THEN list_avg(baseline_samples) / list_avg(kernel_samples)
    END AS speedup,
    measured_at
FROM paired_samples
QUALIFY row_number() OVER (
    PARTITION BY session_id, baseline, kernel_id, task_id
    ORDER BY {'other': clock <> 'latency', 'device': clock <> 'gpu'}
) = 1
