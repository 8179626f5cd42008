-- What others published of kernels for the task: one row per GPU and kernel, speedup over eager.
--
-- key columns: gpu, claimed, kernel, source
SELECT
    claims.gpu,
    claims.speedup AS claimed,
    left(claims.kernel_id, 12) AS kernel,
    features."language",
    claims.source,
    claims.source_revision
FROM current_claims AS claims
LEFT JOIN features ON features.kernel_id = claims.kernel_id
WHERE claims.task_id = $task_id AND claims.metric = 'speedup' AND claims.baseline = 'eager'
ORDER BY claims.gpu, claims.speedup DESC
