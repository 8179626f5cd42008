-- One row: how many kernels and tasks of the picked rows this lake has not audited. `evaluators
-- audit` writes scans, which name the kernels that it searched for signs of cheating, and
-- `evaluators tasks` task_audits. Audits of pulled lakes do not count. `picked` (row_index, task_id,
-- kernel_ids) is registered.
SELECT
    (
        SELECT count(*)
        FROM (SELECT DISTINCT unnest(kernel_ids) AS kernel_id FROM picked) AS kernels
        ANTI JOIN (
            SELECT scans.kernel_id
            FROM scans
            INNER JOIN runs ON runs.run_id = scans.run_id
            WHERE runs.origin IS NULL
        ) AS searched ON searched.kernel_id = kernels.kernel_id
    ) AS kernels,
    (
        SELECT count(*)
        FROM (SELECT DISTINCT task_id FROM picked) AS tasks
        ANTI JOIN (
            SELECT task_id FROM task_audits WHERE origin IS NULL
        ) AS audited ON audited.task_id = tasks.task_id
    ) AS tasks
