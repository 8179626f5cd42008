-- One row per evaluation that no other row of table evaluations withdraws.
-- A row that names another one in `withdraws` takes it back, such as a verdict that a fault of its
-- host decided (`evaluators withdraw`). A pulled row withdraws only rows of its own lake. Judges of
-- versions before 0.6.0 wrote custom_required behind the precision. Here it is the flag of later
-- ones, which correct kernels without device time outside library kernels have.
--
-- precision: floating-point precision that the verdict allows, such as torch_default or fp32_strict
SELECT
    evaluations.* REPLACE (
        split_part(evaluations."precision", ' ', 1) AS "precision",
        CASE
            WHEN
                contains(evaluations."precision", 'custom_required')
                AND evaluations.status = 'correct'
                AND NOT coalesce(evaluations.custom_kernel_share > 0, false)
                THEN list_append(evaluations.flags, 'custom_required')
            ELSE evaluations.flags
        END AS flags
    )
FROM evaluations
ANTI JOIN (
    SELECT withdraws AS evaluation_id, kernel_id, task_id, origin
    FROM evaluations
    WHERE withdraws IS NOT NULL
) AS withdrawals
    ON
        withdrawals.evaluation_id = evaluations.evaluation_id
        AND withdrawals.kernel_id = evaluations.kernel_id
        AND withdrawals.task_id = evaluations.task_id
        AND (withdrawals.origin IS NULL OR withdrawals.origin = evaluations.origin)
