-- One row per kernel and task whose rows may not hold the kernel, with the reason.
-- Parameters: another_function (whether kernels that are another function than the task's
-- module are fit) and shapes: with honest, a kernel that is wrong at another shape of the task
-- is unfit, and with held every kernel that does not hold at other shapes, or was tried at none
-- (view shapes).
SELECT kernel_id, task_id, min(reason) AS reason
FROM (
    SELECT kernel_id, task_id, 'another function' AS reason
    FROM nonequivalent
    WHERE NOT $another_function
    UNION ALL
    SELECT kernel_id, task_id, 'wrong at another shape'
    FROM shapes
    WHERE $shapes <> 'any' AND wrong > 0
    UNION ALL
    SELECT generations.kernel_id, generations.task_id, 'not held at other shapes'
    FROM generations
    ANTI JOIN (
        SELECT kernel_id, task_id
        FROM shapes
        GROUP BY kernel_id, task_id
        HAVING bool_and(holds)
    ) AS held
        ON held.kernel_id = generations.kernel_id AND held.task_id = generations.task_id
    WHERE $shapes = 'held' AND generations.kernel_id IS NOT NULL
)
GROUP BY kernel_id, task_id
