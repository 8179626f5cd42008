-- Outcome
-- The verdict and the speedups of its kernel on each device, one for each clock, precision and
-- baseline. A kernel that computes another function has no speedup here.
-- Empty: Its kernel has no verdict, or it has no kernel.
SELECT
    outcomes.kernel_id, outcomes.status,
    speeds.speedup, speeds.speedup_low, speeds.speedup_high,
    outcomes.device, outcomes.reason, speeds.baseline, speeds.clock, speeds."precision"
FROM generations
INNER JOIN outcomes
    ON outcomes.kernel_id = generations.kernel_id AND outcomes.task_id = generations.task_id
LEFT JOIN nonequivalent
    ON nonequivalent.kernel_id = outcomes.kernel_id AND nonequivalent.task_id = outcomes.task_id
LEFT JOIN pooled_speedups AS speeds
    ON nonequivalent.kernel_id IS NULL
        AND speeds.kernel_id = outcomes.kernel_id AND speeds.task_id = outcomes.task_id
        AND speeds.device_id = outcomes.device_id AND speeds.workload_id = outcomes.workload_id
WHERE generations.generation_id = $attempt
ORDER BY outcomes.device, outcomes.workload_id, speeds.clock, speeds."precision",
    speeds.baseline <> 'eager', speeds.baseline
