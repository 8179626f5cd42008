-- One row per task, device and baseline whose best kernel is new or changed between two snapshots.
SELECT
    task_id,
    device,
    baseline,
    before.kernel_id AS kernel_before,
    after.kernel_id AS kernel_after,
    before.speedup AS speedup_before,
    after.speedup AS speedup_after
FROM _best_before AS before
FULL JOIN best_kernels AS after USING (task_id, workload_id, device, baseline)
WHERE before.kernel_id IS DISTINCT FROM after.kernel_id
   OR before.speedup IS DISTINCT FROM after.speedup
ORDER BY ALL
