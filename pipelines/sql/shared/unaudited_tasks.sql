-- One row: how many tasks of the picked rows this lake has not audited. `evaluators tasks` writes
-- task_audits. Audits of pulled lakes do not count. `picked` (row_index, task_id) is registered.
SELECT count(*) AS tasks
FROM (SELECT DISTINCT task_id FROM picked) AS tasks
ANTI JOIN (
    SELECT task_id FROM task_audits WHERE origin IS NULL
) AS audited ON audited.task_id = tasks.task_id
