-- One row per kernel and task asked for that we judged correct, and why it may not be shown.
-- Correct somewhere and found wrong nowhere (view outcomes).
-- Registered are `asked`, the tasks, `unfit` and `excluded`.
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
        WHEN excluded.kernel_id IS NOT NULL THEN excluded.reason
        WHEN judged.wrong THEN 'wrong elsewhere'
        WHEN unfit.kernel_id IS NOT NULL THEN unfit.reason
    END AS dropped
FROM judged
LEFT JOIN excluded ON excluded.kernel_id = judged.kernel_id
LEFT JOIN unfit
    ON
        unfit.kernel_id = judged.kernel_id
        AND unfit.task_id = judged.task_id
WHERE judged.correct
