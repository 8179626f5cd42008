-- One row per run, task, device, baseline and step that raised the run's best speedup of the task.
-- This is the running maximum over a run's steps of the speedup's lower bound, as in all rankings,
-- at the workload that scores the task. Quarantined kernels are left out. previous_low is the bound
-- that the run had reached before, NULL for its first one. record says whether the new bound is
-- above everything that the lake had measured before this kernel (history).
--
-- key columns: run, step, task, device, baseline, speedup, speedup_low, record, kernel_id
-- record: whether the bound is above everything that the lake had measured before
-- step: step of the run that wrote the kernel
WITH measured AS (
    SELECT
        run_steps.run_id, run_steps.step, speeds.task_id, speeds.device, speeds.baseline,
        min({
            'slowness': -speeds.speedup_low, 'kernel_id': speeds.kernel_id,
            'generation_id': run_steps.generation_id, 'speedup': speeds.speedup,
            'speedup_low': speeds.speedup_low, 'session_id': speeds.session_id
        }) AS best
    FROM run_steps
    INNER JOIN scored_speedups AS speeds
        ON speeds.kernel_id = run_steps.kernel_id AND speeds.task_id = run_steps.task_id
    GROUP BY
        run_steps.run_id, run_steps.step, speeds.task_id, speeds.device, speeds.baseline
),
ordered AS (
    SELECT
        *,
        max(best.speedup_low) OVER (
            PARTITION BY run_id, task_id, device, baseline
            ORDER BY step NULLS FIRST
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS previous_low
    FROM measured
)
SELECT
    ordered.run_id,
    runs."name" AS run,
    ordered.step,
    ordered.task_id,
    task_names.task,
    ordered.device,
    ordered.baseline,
    ordered.best.kernel_id AS kernel_id,
    ordered.best.generation_id AS generation_id,
    ordered.best.speedup AS speedup,
    ordered.best.speedup_low AS speedup_low,
    ordered.previous_low,
    "history".session_id IS NOT NULL AS record
FROM ordered
INNER JOIN runs ON runs.run_id = ordered.run_id
INNER JOIN task_names ON task_names.task_id = ordered.task_id
LEFT JOIN "history"
    ON
        "history".session_id = ordered.best.session_id
        AND "history".baseline = ordered.baseline
WHERE ordered.previous_low IS NULL OR ordered.best.speedup_low > ordered.previous_low
ORDER BY
    runs.started_at, ordered.run_id, ordered.task_id, ordered.device, ordered.baseline,
    ordered.step NULLS FIRST
