-- Speedups on two devices
-- One point per kernel and task, on the line where the speedup is the same; the bar is the interval
-- on the second device. At most 800 kernels of a chart, chosen by their ids, which are hashes.
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
