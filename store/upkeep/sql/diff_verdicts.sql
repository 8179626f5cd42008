-- One row per kernel, task, workload, device, evaluator and precision whose verdict is new ($new) or
-- changed between two snapshots.
SELECT
    kernel_id,
    task_id,
    device,
    evaluator,
    "precision",
    before.status AS status_before,
    after.status AS status_after,
    after.reason
FROM _verdicts_before AS before
FULL JOIN verdicts AS after
    USING (kernel_id, task_id, workload_id, device_id, device, evaluator, "precision")
WHERE before.status IS DISTINCT FROM after.status AND (before.status IS NULL) = $new
ORDER BY ALL
