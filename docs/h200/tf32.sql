-- Kernels with wrong numbers under PyTorch's own flags on H200s, and what the judge finds with TF32 allowed
-- everywhere (allow_tf32). error_size is the precision whose rounding errors have the size of the first
-- errors; lower is below bf16. near counts the kernels that are still wrong, with errors of at most twice
-- the tolerance. Speedups are over eager, which then may use TF32 too, by the clock gpu and from quiet
-- sessions, without trivial tasks and kernels that compute another function. Kernels released for the H100.
WITH wrong AS (
    SELECT evaluations.kernel_id, evaluations.task_id, min(evaluations.precision_class) AS error_size
    FROM counted_evaluations AS evaluations
    INNER JOIN devices ON devices.device_id = evaluations.device_id
    WHERE
        evaluations.evaluator = 'judge' AND evaluations."precision" = 'torch_default'
        AND evaluations.reason = 'incorrect_numerical' AND devices."name" = 'H200'
        AND evaluations.kernel_id IN (SELECT kernel_id FROM claimed_speedups WHERE gpu = 'H100' AND released)
    GROUP BY ALL
),
again AS (
    SELECT
        evaluations.kernel_id, evaluations.task_id,
        bool_and(evaluations.status = 'correct') AS correct,
        max(evaluations.max_scaled_error) AS scaled_error
    FROM counted_evaluations AS evaluations
    INNER JOIN devices ON devices.device_id = evaluations.device_id
    WHERE
        evaluations.evaluator = 'judge' AND evaluations."precision" = 'allow_tf32'
        AND evaluations.status <> 'evaluator_error' AND devices."name" = 'H200'
    GROUP BY ALL
),
quiet AS (
    SELECT kernel_id, task_id, arg_max(speedup, measured_at) AS speedup
    FROM speedups
    ANTI JOIN nonequivalent
        ON nonequivalent.kernel_id = speedups.kernel_id AND nonequivalent.task_id = speedups.task_id
    WHERE
        device = 'H200' AND "precision" = 'allow_tf32' AND clock = 'gpu' AND baseline = 'eager' AND NOT disturbed AND NOT unresolved
        AND task_id NOT IN (FROM weak_tasks)
    GROUP BY ALL
)
SELECT
    wrong.error_size,
    count(*) AS kernels,
    count(again.correct) AS judged_again,
    count(*) FILTER (WHERE again.correct) AS correct,
    count(*) FILTER (WHERE again.correct AND nonequivalent.kernel_id IS NOT NULL) AS another_function,
    count(*) FILTER (WHERE NOT again.correct AND again.scaled_error <= 2) AS near,
    count(quiet.speedup) AS quiet,
    round(median(quiet.speedup), 3) AS median_eager
FROM wrong
LEFT JOIN again ON again.kernel_id = wrong.kernel_id AND again.task_id = wrong.task_id
LEFT JOIN nonequivalent
    ON nonequivalent.kernel_id = wrong.kernel_id AND nonequivalent.task_id = wrong.task_id
LEFT JOIN quiet ON quiet.kernel_id = wrong.kernel_id AND quiet.task_id = wrong.task_id
GROUP BY wrong.error_size
ORDER BY kernels DESC, wrong.error_size
