-- Kernels with wrong numbers under PyTorch's own flags on H200s, and what the judge finds with TF32 allowed
-- everywhere (allow_tf32). error_size is the precision whose rounding errors have the size of the first
-- errors; lower is below bf16. judged_again counts kernels with a verdict under allow_tf32. Speedups are over
-- eager, which then may use TF32 too, by the clock gpu and from quiet sessions, without weak tasks and kernels
-- that compute another function. Kernels released for the H100.
WITH wrong AS (
    SELECT
        evaluations.kernel_id, evaluations.task_id, devices."name" AS device,
        min(evaluations.precision_class) AS error_size
    FROM counted_evaluations AS evaluations
    INNER JOIN devices ON devices.device_id = evaluations.device_id
    WHERE
        evaluations.evaluator = 'judge' AND evaluations.policy = 'torch_default'
        AND devices."name" = 'H200'
        AND evaluations.reason = 'incorrect_numerical'
        AND evaluations.kernel_id IN (SELECT kernel_id FROM claimed_speedups WHERE gpu = 'H100' AND released)
    GROUP BY ALL
),
again AS (
    SELECT
        evaluations.kernel_id, evaluations.task_id, devices."name" AS device,
        bool_and(evaluations.status = 'correct') AS correct
    FROM counted_evaluations AS evaluations
    INNER JOIN devices ON devices.device_id = evaluations.device_id
    WHERE
        evaluations.evaluator = 'judge' AND evaluations.policy = 'allow_tf32'
        AND evaluations.status <> 'evaluator_error'
    GROUP BY ALL
),
quiet AS (
    SELECT kernel_id, task_id, device, arg_max(speedup, measured_at) AS speedup
    FROM speedups
    WHERE
        "precision" = 'allow_tf32' AND clock = 'gpu' AND baseline = 'eager' AND NOT noisy
        AND task_id NOT IN (FROM weak_tasks)
    GROUP BY ALL
)
SELECT
    wrong.device,
    wrong.error_size,
    count(*) AS kernels,
    count(again.correct) AS judged_again,
    count(*) FILTER (WHERE again.correct) AS correct,
    count(*) FILTER (WHERE again.correct AND nonequivalent.kernel_id IS NOT NULL) AS another_function,
    count(quiet.speedup) FILTER (WHERE nonequivalent.kernel_id IS NULL) AS quiet,
    round(median(quiet.speedup) FILTER (WHERE nonequivalent.kernel_id IS NULL), 3) AS median_eager
FROM wrong
LEFT JOIN again
    ON again.kernel_id = wrong.kernel_id AND again.task_id = wrong.task_id AND again.device = wrong.device
LEFT JOIN nonequivalent
    ON nonequivalent.kernel_id = wrong.kernel_id AND nonequivalent.task_id = wrong.task_id
LEFT JOIN quiet
    ON quiet.kernel_id = wrong.kernel_id AND quiet.task_id = wrong.task_id AND quiet.device = wrong.device
GROUP BY wrong.device, wrong.error_size
ORDER BY wrong.device, kernels DESC, wrong.error_size
