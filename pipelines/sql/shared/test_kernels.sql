-- One row per kernel that is an attempt at one of the held-out tasks, or the released code of a
-- baseline of one. Pulled attempts and claims count only if this lake has no own attempt or claim
-- with the kernel. `held_out` is registered; it is empty unless the dataset is for training.
WITH texts AS (
    SELECT kernel_id, task_id, origin FROM generations
    UNION ALL
    SELECT baseline_kernel_id, task_id, origin FROM claims
),
own AS (
    SELECT DISTINCT kernel_id FROM texts WHERE origin IS NULL AND kernel_id IS NOT NULL
)
SELECT DISTINCT texts.kernel_id
FROM texts
SEMI JOIN held_out ON held_out.task_id = texts.task_id
LEFT JOIN own ON own.kernel_id = texts.kernel_id
WHERE texts.kernel_id IS NOT NULL AND (texts.origin IS NULL OR own.kernel_id IS NULL)
