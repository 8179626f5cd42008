-- The expected answer of every arm at every test task, as a speedup. Reads `units` and `surface`.
WITH tested AS (
    SELECT
        task_id, any_value(family) AS family, any_value(shape) AS shape,
        any_value(operation) AS operation, max(outcome) AS best, avg(outcome) AS uniform
    FROM surface
    SEMI JOIN units ON units.task_id = surface.task_id
    GROUP BY task_id
)
SELECT
    tested.family, tested.shape, tested.operation,
    round(exp(any_value(tested.best)), 3) AS best,
    round(exp(any_value(tested.uniform)), 3) AS uniform,
    round(exp(avg(units.score) FILTER (WHERE units.arm = 'right')), 3) AS "right",
    round(exp(avg(units.score) FILTER (WHERE units.arm = 'reversed')), 3) AS reversed,
    round(exp(avg(units.score) FILTER (WHERE units.arm = 'no_scores')), 3) AS no_scores,
    round(exp(avg(units.score) FILTER (WHERE units.arm = 'other_task')), 3) AS other_task,
    round(exp(avg(units.score) FILTER (WHERE units.arm = 'none')), 3) AS "none"
FROM units
INNER JOIN tested ON tested.task_id = units.task_id
GROUP BY tested.family, tested.shape, tested.operation
ORDER BY tested.family, tested.shape, tested.operation
