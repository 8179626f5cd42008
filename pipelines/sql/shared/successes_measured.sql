-- One row per kernel and task asked for that we judged correct, and why it may not be shown.
-- Correct somewhere and found wrong nowhere (view outcomes).
-- Registered are `asked`, the tasks, `unfit`, `test_kernels` and `audited`.
WITH judged AS (
    SELECT
        outcomes.kernel_id, outcomes.task_id,
        bool_or(outcomes.correct) AS correct,
        bool_or(outcomes.status IN ('incorrect', 'rejected')) AS wrong,
        max(devices.kind) FILTER (WHERE outcomes.correct) AS device_kind
    FROM outcomes
    INNER JOIN devices ON devices.device_id = outcomes.device_id
    SEMI JOIN asked ON asked.task_id = outcomes.task_id
    GROUP BY outcomes.kernel_id, outcomes.task_id
)
SELECT
    judged.task_id,
    judged.kernel_id,
    -- max('cpu', 'cuda'): a kernel that is correct on a GPU is shown as one for a GPU.
    judged.device_kind,
    CASE
        WHEN withheld.kernel_id IS NOT NULL THEN withheld.reason
        WHEN judged.wrong THEN 'wrong elsewhere'
        WHEN unfit.kernel_id IS NOT NULL THEN unfit.reason
        WHEN test_kernels.kernel_id IS NOT NULL THEN 'contaminated'
        WHEN judged.kernel_id NOT IN (SELECT kernel_id FROM audited) THEN 'not audited'
    END AS dropped
FROM judged
LEFT JOIN withheld ON withheld.kernel_id = judged.kernel_id
LEFT JOIN unfit
    ON
        unfit.kernel_id = judged.kernel_id
        AND unfit.task_id = judged.task_id
LEFT JOIN test_kernels ON test_kernels.kernel_id = judged.kernel_id
WHERE judged.correct
