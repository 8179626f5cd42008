-- One row per task and workload that an answer without work passes, by the newest audit of it.
-- Several devices may have been asked; of one version the latest answer counts.
SELECT task_id, workload_id
FROM task_audits
GROUP BY task_id, workload_id
HAVING arg_max(weak, {'version': auditor_version, 'created_at': created_at})
