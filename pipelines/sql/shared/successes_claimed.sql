-- One row per kernel and task asked for with a published speedup, which its source calls correct.
-- A kernel that we judged ourselves and found wrong, never correct, or another function than the
-- task's, is out whatever was published, and so is one of `excluded`.
-- Registered are `asked`, the tasks, `unfit` and `excluded`.
WITH judged AS (
    SELECT
        kernel_id, task_id,
        bool_or(status IN ('incorrect', 'rejected')) OR NOT bool_or(correct) AS wrong
    FROM outcomes
    GROUP BY kernel_id, task_id
),
published AS (
    SELECT DISTINCT task_id, kernel_id
    FROM current_claims AS claims
    SEMI JOIN asked ON asked.task_id = claims.task_id
    WHERE metric = 'speedup' AND kernel_id IS NOT NULL
)
SELECT
    published.task_id,
    published.kernel_id,
    'cuda' AS device_kind,
    CASE
        WHEN excluded.kernel_id IS NOT NULL THEN excluded.reason
        WHEN judged.wrong THEN 'judged wrong'
        WHEN unfit.kernel_id IS NOT NULL THEN unfit.reason
    END AS dropped
FROM published
LEFT JOIN excluded ON excluded.kernel_id = published.kernel_id
LEFT JOIN unfit
    ON
        unfit.kernel_id = published.kernel_id
        AND unfit.task_id = published.task_id
LEFT JOIN judged
    ON judged.kernel_id = published.kernel_id AND judged.task_id = published.task_id
