-- One row per task and workload that a trivial answer passes, according to the newest audit.
-- Several devices may have run the audit; of one version, the latest answer counts. Audits of this
-- lake take precedence over pulled ones, whatever version those state.
SELECT task_id, workload_id
FROM task_audits
GROUP BY task_id, workload_id
HAVING arg_max(weak, {
    'own': origin IS NULL, 'version': auditor_version, 'created_at': created_at
})
