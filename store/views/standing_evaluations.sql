-- One row per evaluation that no other row of table evaluations withdraws.
-- A row that names another one in `withdraws` takes it back, such as a verdict that a fault of its
-- host decided (`evaluators withdraw`). A pulled row withdraws only rows of its own lake.
--
-- policy: precision that the verdict allows, and further conditions such as custom_required
SELECT evaluations.*
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
