-- Why claims over eager for the H100 fall on H100s under PyTorch's own flags: kernels that are slower than
-- claimed, and kernels that are not correct, by reason. small_errors counts those whose answer in the first
-- call that failed differs from the reference's by less than 0.01 everywhere.
WITH errors AS (
    SELECT evaluations.kernel_id, evaluations.task_id, max(evaluations.max_abs_error) AS max_abs_error
    FROM counted_evaluations AS evaluations
    INNER JOIN devices ON devices.device_id = evaluations.device_id
    WHERE
        devices."name" = 'H100' AND evaluations."precision" = 'torch_default'
        AND evaluations.status <> 'correct'
    GROUP BY ALL
)
SELECT
    CASE WHEN claims.status = 'correct' THEN 'slower' ELSE claims.reason END AS reason,
    count(*) AS claims,
    count(*) FILTER (WHERE errors.max_abs_error < 0.01) AS small_errors
FROM claims_vs_measured AS claims
LEFT JOIN errors ON errors.kernel_id = claims.kernel_id AND errors.task_id = claims.task_id
WHERE
    claims.source = 'cuda-l1' AND claims.baseline = 'eager' AND claims.gpu = 'H100' AND claims.device = 'H100'
    AND claims.falls
GROUP BY ALL
ORDER BY claims DESC, reason
