-- One row per task and workload that a trivial answer passes, according to the newest audit.
-- Several devices may have run the audit; of one version, the latest answer counts. Pulled audits
-- count only for tasks without an audit of this lake, whatever version or workload they state.
SELECT task_id, workload_id
FROM (
    FROM task_audits
    QUALIFY origin IS NULL OR NOT bool_or(origin IS NULL) OVER (PARTITION BY task_id)
)
GROUP BY task_id, workload_id
HAVING arg_max(weak, {'version': auditor_version, 'created_at': created_at})
