-- Correct kernels under PyTorch's own flags that are not equivalent to the task's module, by device and
-- level, and what changes if kernels that only rename parameters (or do not have them under the task's
-- names) count as equivalent. other fails another check of equivalence, too. Speedups are over eager by the
-- clock gpu, from quiet sessions without trivial tasks; those of a kernel pool (pooled_speedups). The counts of
-- verdicts have trivial tasks. Kernels released for the H100.
WITH judged AS (
    SELECT
        counted_evaluations.kernel_id, counted_evaluations.task_id, devices."name" AS device,
        bool_and(counted_evaluations.status = 'correct') AS correct
    FROM counted_evaluations
    INNER JOIN devices ON devices.device_id = counted_evaluations.device_id
    WHERE
        counted_evaluations.evaluator = 'judge' AND counted_evaluations.status <> 'evaluator_error'
        AND counted_evaluations."precision" = 'torch_default'
        AND counted_evaluations.kernel_id IN (
            SELECT kernel_id FROM claimed_speedups WHERE gpu = 'H100' AND released
        )
    GROUP BY ALL
),
standing AS (
    SELECT
        judged.device, judged.kernel_id, judged.task_id,
        CASE
            WHEN nonequivalent.kernel_id IS NULL THEN 'equivalent'
            WHEN list_has_any(
                nonequivalent.flags, ['another_function', 'fails_perturbed_parameters', 'state_differs']
            ) THEN 'other'
            ELSE 'renamed'
        END AS standing
    FROM judged
    LEFT JOIN nonequivalent
        ON nonequivalent.kernel_id = judged.kernel_id AND nonequivalent.task_id = judged.task_id
    WHERE judged.correct
),
quiet AS (
    SELECT device, kernel_id, task_id, speedup
    FROM pooled_speedups
    WHERE
        clock = 'gpu' AND baseline = 'eager' AND "precision" = 'torch_default'
        AND task_id NOT IN (FROM weak_tasks)
)
SELECT
    standing.device,
    task_names."level",
    count(*) AS correct,
    count(*) FILTER (WHERE standing = 'renamed') AS renamed,
    count(*) FILTER (WHERE standing = 'other') AS other,
    count(quiet.speedup) FILTER (WHERE standing = 'equivalent') AS quiet,
    round(median(quiet.speedup) FILTER (WHERE standing = 'equivalent'), 3) AS median_eager,
    count(quiet.speedup) FILTER (WHERE standing <> 'other') AS quiet_with_renamed,
    round(median(quiet.speedup) FILTER (WHERE standing <> 'other'), 3) AS median_with_renamed
FROM standing
INNER JOIN task_names ON task_names.task_id = standing.task_id
LEFT JOIN quiet
    ON
        quiet.device = standing.device
        AND quiet.kernel_id = standing.kernel_id AND quiet.task_id = standing.task_id
WHERE task_names.suite = 'kernelbench'
GROUP BY standing.device, task_names."level"
ORDER BY standing.device DESC, task_names."level"
