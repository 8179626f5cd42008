-- Kernels of the tasks asked for that were judged and are correct nowhere.
-- Those that no dataset may hold are left out: quarantined, suspected and rejected ones, and those that
-- no audit has read. `asked`, the tasks, and `audited` are registered.
SELECT outcomes.task_id, outcomes.kernel_id, min(outcomes.status) AS status
FROM outcomes
SEMI JOIN asked ON asked.task_id = outcomes.task_id
SEMI JOIN audited ON audited.kernel_id = outcomes.kernel_id
ANTI JOIN withheld ON withheld.kernel_id = outcomes.kernel_id
GROUP BY outcomes.task_id, outcomes.kernel_id
HAVING NOT bool_or(outcomes.correct)
