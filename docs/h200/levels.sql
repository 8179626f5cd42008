-- Success and speedup by device, precision and level. Speedups are by the clock gpu and come from quiet
-- sessions; those of a kernel pool (pooled_speedups). Like quiet, they leave out trivial tasks
-- (docs/weak-tasks) and kernels that compute another function than the task (nonequivalent).
-- The other counts have both; another_function counts correct kernels. best is the fastest baseline of the
-- kernel. Kernels released for the H100, without the verdicts under allow_tf32, which few have (tf32.sql).
WITH judged AS (
    SELECT
        kernel_id, task_id, devices."name" AS device, "precision",
        -- One finding of a fault on any of the cards is enough, as in verdicts.
        bool_and(status = 'correct') AS correct
    FROM counted_evaluations
    INNER JOIN devices ON devices.device_id = counted_evaluations.device_id
    WHERE
        evaluator = 'judge' AND status <> 'evaluator_error' AND "precision" <> 'allow_tf32'
        AND kernel_id IN (SELECT kernel_id FROM claimed_speedups WHERE gpu = 'H100' AND released)
    GROUP BY kernel_id, task_id, devices."name", "precision"
),
sessions AS (
    SELECT
        kernel_id, task_id, device, "precision",
        any_value(speedup) FILTER (WHERE baseline = 'eager') AS eager,
        min(speedup) AS best
    FROM pooled_speedups
    WHERE clock = 'gpu' AND task_id NOT IN (FROM weak_tasks)
    GROUP BY kernel_id, task_id, device, "precision"
)
SELECT
    judged.device,
    judged."precision",
    task_names."level",
    count(*) AS kernels,
    count(*) FILTER (WHERE judged.correct) AS correct,
    count(*) FILTER (WHERE judged.correct AND nonequivalent.kernel_id IS NOT NULL) AS another_function,
    count(sessions.eager) AS quiet,
    round(avg(sessions.eager), 3) AS mean_eager,
    round(exp(avg(ln(sessions.eager))), 3) AS geomean_eager,
    round(median(sessions.eager), 3) AS median_eager,
    round(avg(sessions.best), 3) AS mean_best,
    round(exp(avg(ln(sessions.best))), 3) AS geomean_best,
    round(median(sessions.best), 3) AS median_best
FROM judged
INNER JOIN task_names ON task_names.task_id = judged.task_id
LEFT JOIN nonequivalent
    ON nonequivalent.kernel_id = judged.kernel_id AND nonequivalent.task_id = judged.task_id
LEFT JOIN sessions
    ON
        nonequivalent.kernel_id IS NULL
        AND sessions.kernel_id = judged.kernel_id AND sessions.task_id = judged.task_id
        AND sessions.device = judged.device AND sessions."precision" = judged."precision" AND judged.correct
WHERE task_names.suite = 'kernelbench'
GROUP BY ALL
ORDER BY judged.device DESC, judged."precision" DESC, task_names."level"
