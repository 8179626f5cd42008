-- Claims against measurements
-- Published speedups of kernels for this task, beside those measured here. A claim for another GPU
-- may be true there. A trivial task and a kernel that computes another function confirm and refute
-- nothing.
-- Empty: No release states a speedup for this task.
SELECT
    gpu, claimed, measured, measured_low, measured_high,
    CASE
        WHEN weak THEN 'trivial task'
        WHEN status <> 'correct' THEN status
        WHEN NOT equivalent THEN 'another function'
        WHEN holds THEN 'holds'
        WHEN holds IS NULL THEN 'no quiet session'
        WHEN exceeded THEN CASE WHEN same_gpu THEN 'exceeded' ELSE 'faster here' END
        ELSE CASE WHEN same_gpu THEN 'falls' ELSE 'slower here' END
    END AS outcome,
    ratio, device, baseline, "source", kernel_id
FROM claims_vs_measured
WHERE task_id = $task
ORDER BY claimed DESC, "source", gpu, device, kernel_id
