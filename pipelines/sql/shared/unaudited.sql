-- One row: how many kernels and tasks of the picked rows nobody has audited. `evaluators audit` writes
-- scans, which name the kernels that it searched for signs of cheating, and `evaluators tasks`
-- task_audits. `picked` (row_index, task_id, kernel_ids) is registered.
SELECT
    (
        SELECT count(*)
        FROM (SELECT DISTINCT unnest(kernel_ids) AS kernel_id FROM picked) AS kernels
        ANTI JOIN scans ON scans.kernel_id = kernels.kernel_id
    ) AS kernels,
    (
        SELECT count(*)
        FROM (SELECT DISTINCT task_id FROM picked) AS tasks
        ANTI JOIN task_audits ON task_audits.task_id = tasks.task_id
    ) AS tasks
