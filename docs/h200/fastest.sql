-- The kernels with the largest speedup over eager under PyTorch's own flags, by device, and their speedup
-- over the fastest baseline. Quiet sessions by the clock gpu; those of a kernel pool (pooled_speedups).
-- Kernels released for the H100; trivial tasks and kernels that compute another function are left out. fragile
-- lists the robustness checks that a kernel fails.
WITH sessions AS (
    SELECT
        device, kernel_id, task_id,
        any_value(speedup) FILTER (WHERE baseline = 'eager') AS eager,
        min(speedup) AS best,
        arg_min(baseline, speedup) AS hardest
    FROM pooled_speedups
    WHERE
        clock = 'gpu' AND "precision" = 'torch_default'
        AND task_id NOT IN (FROM weak_tasks)
        AND kernel_id IN (SELECT kernel_id FROM claimed_speedups WHERE gpu = 'H100' AND released)
    GROUP BY device, kernel_id, task_id
)
SELECT
    sessions.device,
    task_names.task,
    round(sessions.eager, 2) AS eager,
    round(sessions.best, 2) AS best,
    sessions.hardest,
    array_to_string(fragile.flags, ', ') AS fragile
FROM sessions
INNER JOIN task_names ON task_names.task_id = sessions.task_id
ANTI JOIN nonequivalent
    ON nonequivalent.kernel_id = sessions.kernel_id AND nonequivalent.task_id = sessions.task_id
LEFT JOIN fragile ON fragile.kernel_id = sessions.kernel_id AND fragile.task_id = sessions.task_id
WHERE task_names.suite = 'kernelbench'
QUALIFY row_number() OVER (PARTITION BY sessions.device ORDER BY sessions.eager DESC) <= 10
ORDER BY sessions.device DESC, sessions.eager DESC
