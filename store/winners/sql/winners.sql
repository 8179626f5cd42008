-- One row per task, workload and device: the kernel that may leave with the highest lower bound.
-- The smaller kernel_id wins a tie.
-- Parameters: kernels (ids of the only kernels), own (only kernels with verdicts of this lake's own,
-- beside those; without both, all kernels). Table: _permitted.
SELECT *
FROM _permitted
WHERE
    left_out IS NULL
    AND (
        list_contains(CAST($kernels AS VARCHAR[]), kernel_id)
        OR CASE WHEN $own THEN origin IS NULL ELSE len(CAST($kernels AS VARCHAR[])) = 0 END
    )
QUALIFY row_number() OVER (
    PARTITION BY task_id, workload_id, device ORDER BY speedup_low DESC, kernel_id
) = 1
ORDER BY suite, suite_revision, "level", task, task_id, device, workload_id
