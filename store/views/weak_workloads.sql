-- One row per task and workload that an answer without work passes, by the newest audit of it.
-- Several devices may have been asked; of one version the latest answer counts. Audits of this lake
-- count before pulled ones, whatever version those state.
SELECT task_id, workload_id
FROM task_audits
GROUP BY task_id, workload_id
HAVING arg_max(weak, {
    'own': origin IS NULL, 'version': auditor_version, 'created_at': created_at
})
