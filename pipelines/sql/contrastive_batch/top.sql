-- The fastest kernels of the task: the first draw shows the first n of them, the next draw the next n.
-- `eligible` (task_id, kernel_id, score) and `draws` (row_index, task_id, draw) are registered.
WITH ranked AS (
    SELECT
        task_id, kernel_id, score,
        (row_number() OVER (PARTITION BY task_id ORDER BY score DESC, kernel_id) - 1)
        // $exemplars AS draw
    FROM eligible
)
SELECT draws.row_index, draws.task_id, draws.draw, ranked.kernel_id, ranked.score
FROM draws
INNER JOIN ranked ON ranked.task_id = draws.task_id AND ranked.draw = draws.draw
