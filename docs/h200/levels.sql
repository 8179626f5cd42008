-- Success and speedup by level on the H200: all judged kernels, and those whose session was quiet.
-- Speedups leave out weak tasks, which trivial answers pass (docs/weak-tasks); `weak` counts them.
-- best is the baseline that is hardest to beat among those measured in the session. Of several
-- sessions of a kernel the newest quiet one counts.
WITH judged AS (
    SELECT
        kernel_id, task_id,
        -- One finding of a fault on any of the cards is enough, as in verdicts.
        bool_and(status = 'correct') AS correct
    FROM evaluations
    WHERE
        evaluator = 'judge' AND status <> 'evaluator_error'
        AND device_id IN (SELECT device_id FROM devices WHERE "name" = 'H200')
    GROUP BY kernel_id, task_id
),
sessions AS (
    SELECT
        kernel_id, task_id, session_id, max(measured_at) AS measured_at,
        bool_or(noisy) AS noisy,
        any_value(speedup) FILTER (WHERE baseline = 'eager') AS eager,
        min(speedup) AS best
    FROM speedups
    WHERE device = 'H200' AND clock = 'gpu'
    GROUP BY kernel_id, task_id, session_id
),
newest AS (
    SELECT * FROM sessions
    QUALIFY row_number() OVER (
        PARTITION BY kernel_id, task_id ORDER BY noisy, measured_at DESC, session_id
    ) = 1
)
SELECT
    task_names."level",
    count(*) AS kernels,
    count(*) FILTER (WHERE judged.correct) AS correct,
    count(*) FILTER (WHERE judged.task_id IN (FROM weak_tasks)) AS weak,
    count(newest.eager) FILTER (WHERE NOT newest.noisy) AS quiet,
    round(avg(newest.eager) FILTER (WHERE NOT newest.noisy), 3) AS mean_eager,
    round(exp(avg(ln(newest.eager)) FILTER (WHERE NOT newest.noisy)), 3) AS geomean_eager,
    round(median(newest.eager) FILTER (WHERE NOT newest.noisy), 3) AS median_eager,
    round(avg(newest.best) FILTER (WHERE NOT newest.noisy), 3) AS mean_best,
    round(exp(avg(ln(newest.best)) FILTER (WHERE NOT newest.noisy)), 3) AS geomean_best,
    round(median(newest.best) FILTER (WHERE NOT newest.noisy), 3) AS median_best
FROM judged
INNER JOIN task_names ON task_names.task_id = judged.task_id
LEFT JOIN newest
    ON newest.kernel_id = judged.kernel_id AND newest.task_id = judged.task_id AND judged.correct
    AND newest.task_id NOT IN (FROM weak_tasks)
WHERE task_names.suite = 'kernelbench'
GROUP BY GROUPING SETS ((task_names."level"), ())
ORDER BY task_names."level" NULLS LAST
