-- The best kernel of each task on one device model against one baseline; without a device, on the
-- model that was measured last. `others` lists the other models, with their numbers of tasks.
WITH best AS (
    SELECT * FROM best_kernels
    WHERE baseline = $baseline AND ($task_id IS NULL OR task_id = $task_id)
),
models AS (
    SELECT device, count(DISTINCT task_id) AS tasks, max(measured_at) AS measured_at
    FROM best
    GROUP BY device
),
chosen AS (
    SELECT device FROM models
    WHERE $device IS NULL OR device = $device
    ORDER BY measured_at DESC, device
    LIMIT 1
),
others AS (
    SELECT string_agg(device || ' (' || tasks || ')', ', ' ORDER BY tasks DESC, device) AS named
    FROM models
    ANTI JOIN chosen ON chosen.device = models.device
)
SELECT
    best.task, best.speedup, best.speedup_low, best.speedup_high, best.kernel_id,
    best.policy AS author, best.kernel_ms, best.baseline_ms, best.workload, best.clock,
    best."precision", best.device, others.named AS others
FROM best
SEMI JOIN chosen ON chosen.device = best.device
CROSS JOIN others
ORDER BY best.suite, best.suite_revision, best."level", best.problem_id, best.task, best.workload
