-- One row: what the attempts of one round came to, attempts counted as often as they were made.
-- Executable is what compiled, ran and gave an answer (CUDA-L1): correct or merely wrong. Correct is
-- correct somewhere and wrong nowhere, the task's own function, and not withheld, as for training
-- sets. An attempt that the machine failed is none, and neither is one whose kernel has no verdict,
-- because the judge failed (unjudged). `groups` (group_id) is registered.
WITH made AS (
    SELECT generations.kernel_id, generations.task_id
    FROM generations
    SEMI JOIN groups ON groups.group_id = generations.group_id
    WHERE generations.finish_reason IS DISTINCT FROM 'error' AND generations.origin IS NULL
),
judged AS (
    SELECT
        outcomes.kernel_id, outcomes.task_id,
        bool_or(outcomes.status IN ('correct', 'incorrect')) AS executable,
        bool_or(outcomes.correct)
            AND NOT bool_or(outcomes.status IN ('incorrect', 'rejected'))
            AND NOT bool_or(nonequivalent.kernel_id IS NOT NULL) AS correct
    FROM outcomes
    LEFT JOIN nonequivalent
        ON
            nonequivalent.kernel_id = outcomes.kernel_id
            AND nonequivalent.task_id = outcomes.task_id
    SEMI JOIN made ON made.kernel_id = outcomes.kernel_id AND made.task_id = outcomes.task_id
    GROUP BY outcomes.kernel_id, outcomes.task_id
)
SELECT
    count(*) FILTER (WHERE made.kernel_id IS NULL OR judged.kernel_id IS NOT NULL) AS attempts,
    count(judged.kernel_id) AS with_code,
    count(DISTINCT judged.kernel_id) AS unique_kernels,
    count(*) FILTER (WHERE judged.executable) AS executable,
    count(*) FILTER (WHERE judged.correct AND withheld.kernel_id IS NULL) AS correct,
    count(DISTINCT made.kernel_id)
        FILTER (WHERE judged.correct AND withheld.kernel_id IS NULL) AS unique_correct,
    count(*) FILTER (WHERE made.kernel_id IS NOT NULL AND judged.kernel_id IS NULL) AS unjudged
FROM made
LEFT JOIN judged ON judged.kernel_id = made.kernel_id AND judged.task_id = made.task_id
LEFT JOIN withheld ON withheld.kernel_id = made.kernel_id
