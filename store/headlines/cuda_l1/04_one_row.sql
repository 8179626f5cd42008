-- One row, between July and November
-- The README of July 2025 and the one of November publish means of the same method over the same
-- tasks. For each GPU, the released row with the highest speedup, and the mean without it (a
-- missing kernel and the row left out count as 1.0).
-- Empty: The release is not in this lake; run: store import cuda-l1 PATH
WITH scores AS (
    SELECT gpu, task, speedup
    FROM claimed_speedups
    WHERE source = 'cuda-l1' AND baseline = 'eager'
),
suite AS (
    SELECT count(DISTINCT "name") AS tasks
    FROM task_labels
    WHERE suite = 'kernelbench' AND suite_revision = 'v0'
),
published AS (
    SELECT
        gpu,
        any_value(value) FILTER (WHERE source_revision = '2025') AS july,
        any_value(value) FILTER (WHERE source_revision = '51e8356') AS november
    FROM current_claims
    WHERE
        metric = 'mean_speedup'
        AND baseline = 'eager'
        AND "level" IS NULL
        AND source = 'CUDA-L1 README'
    GROUP BY gpu
),
recomputed AS (
    SELECT
        scores.gpu, suite.tasks,
        sum(scores.speedup) + suite.tasks - count(*) AS total,
        max({'speedup': scores.speedup, 'task': scores.task}) AS highest
    FROM scores
    CROSS JOIN suite
    GROUP BY scores.gpu, suite.tasks
)
SELECT
    recomputed.gpu,
    published.july,
    published.november,
    round(recomputed.total / recomputed.tasks, 3) AS recomputed,
    recomputed.highest.task AS highest_row,
    recomputed.highest.speedup AS speedup,
    round((recomputed.total - recomputed.highest.speedup + 1) / recomputed.tasks, 3) AS without_it
FROM recomputed
LEFT JOIN published ON published.gpu = recomputed.gpu
ORDER BY recomputed.gpu
