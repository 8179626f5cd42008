-- Speedups on two devices
-- One point per kernel and task. Both speedups are equal on the diagonal; the bar is the interval
-- on the second device. A chart shows at most 800 kernels.
-- Empty: No kernel is timed on two devices: run `evaluators run` on another machine.
SELECT
    device_a, device_b, baseline, speedup_a, speedup_b, speedup_b_low, speedup_b_high,
    count(*) OVER (PARTITION BY device_a, device_b, baseline) AS n
FROM cross_gpu
WHERE NOT quarantined
QUALIFY row_number() OVER (
    PARTITION BY device_a, device_b, baseline ORDER BY kernel_id, task_id
) <= 800
ORDER BY ALL
