-- One row per judged kernel and task that does not hold at other shapes, or was tried at none.
-- A kernel holds if it was tried at another shape and was correct at all of them, on every
-- device (shapes). Rankings leave these kernels out if you ask for `--shapes held`; otherwise
-- they read this view as empty.
SELECT DISTINCT counted_evaluations.kernel_id, counted_evaluations.task_id
FROM counted_evaluations
ANTI JOIN (
    SELECT kernel_id, task_id
    FROM shapes
    GROUP BY kernel_id, task_id
    HAVING bool_and(holds)
) AS held
    ON
        held.kernel_id = counted_evaluations.kernel_id
        AND held.task_id = counted_evaluations.task_id
