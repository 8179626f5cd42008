-- One row per kernel and task asked for, with a published speedup: its score, and why it may not be shown.
-- Of several claims for one kernel, device and baseline the lowest counts. With $every_text the
-- released codes of the baselines count as well (view claimed_kernels). A task that has fewer than
-- $fill_to distinct scores for $device takes its other kernels too, each with its lowest score for
-- another GPU, which scored_on names. A kernel that we judged ourselves and found wrong, never
-- correct, or another function than the task's, is out whatever was published, and so is one of
-- `excluded`. Published scores have no interval: two of them differ from a ratio of $least_ratio on, so
-- that low of one is its score, and reach of the other a score that is so much higher. Registered are
-- `asked`, the tasks, `unfit` and `excluded`.
WITH judged AS (
    SELECT
        kernel_id, task_id,
        bool_or(status IN ('incorrect', 'rejected')) OR NOT bool_or(correct) AS wrong
    FROM outcomes
    GROUP BY kernel_id, task_id
),
published AS (
    SELECT task_id, kernel_id, speedup AS score, gpu AS scored_on, implied
    FROM claimed_kernels
    SEMI JOIN asked ON asked.task_id = claimed_kernels.task_id
    WHERE
        baseline = $baseline
        AND ($every_text OR NOT implied)
        AND ($fill_to > 0 OR gpu = $device)
    QUALIFY row_number() OVER (
        PARTITION BY task_id, kernel_id ORDER BY gpu = $device DESC, speedup, gpu
    ) = 1
),
checked AS (
    SELECT
        published.*,
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
),
enough AS (
    SELECT task_id
    FROM checked
    WHERE scored_on = $device AND dropped IS NULL
    GROUP BY task_id
    HAVING count(DISTINCT score) >= $fill_to
)
SELECT
    task_id,
    kernel_id,
    score,
    CAST(NULL AS DOUBLE) AS score_low,
    CAST(NULL AS DOUBLE) AS score_high,
    score AS low,
    -- Rounded down, so that 1.2 is $least_ratio times 1.
    score * $least_ratio * (1 - 1e-9) AS reach,
    score >= $least_ratio OR reach < 1 AS beside_reference,
    CAST(NULL AS VARCHAR) AS evaluation_id,
    CAST(NULL AS VARCHAR) AS workload_id,
    CAST(NULL AS VARCHAR) AS shapes,
    scored_on,
    implied,
    dropped
FROM checked
WHERE scored_on = $device OR task_id NOT IN (SELECT task_id FROM enough)
