-- One row per kernel that is an attempt at one of the held-out tasks, or the released code of a
-- baseline of one. Pulled attempts and claims count only if this lake has no own attempt or claim
-- with the kernel. `held_out` is registered; it is empty unless the dataset is for training.
WITH texts AS (
    SELECT kernel_id, task_id, origin FROM generations
    UNION ALL
    SELECT baseline_kernel_id, task_id, origin FROM claims
),
held_texts AS (
    SELECT DISTINCT texts.kernel_id, texts.origin IS NULL AS is_own
    FROM texts
    SEMI JOIN held_out ON held_out.task_id = texts.task_id
    WHERE texts.kernel_id IS NOT NULL
),
-- Only pulled kernels are looked up, because most attempts in a large lake are its own.
own AS (
    SELECT DISTINCT texts.kernel_id
    FROM texts
    SEMI JOIN (SELECT kernel_id FROM held_texts WHERE NOT is_own) AS pulled
        ON pulled.kernel_id = texts.kernel_id
    WHERE texts.origin IS NULL
)
SELECT DISTINCT held_texts.kernel_id
FROM held_texts
LEFT JOIN own ON own.kernel_id = held_texts.kernel_id
WHERE held_texts.is_own OR own.kernel_id IS NULL
