-- Units of an arm `constant` beside those of the experiment: the one setting of each family that has the
-- best mean outcome on the train grid, whatever the prompt says. Reads `units_before` and `surface`.
WITH chosen AS (
    SELECT family, arg_max(setting, (outcome, setting)) AS setting
    FROM (
        SELECT family, setting, avg(outcome) AS outcome
        FROM surface
        WHERE split = 'train'
        GROUP BY family, setting
    )
    GROUP BY family
)
SELECT arm, task_id, seed, score, prompts
FROM units_before
UNION ALL
SELECT 'constant', surface.task_id, seeds.seed, surface.outcome, 1
FROM surface
INNER JOIN chosen ON chosen.family = surface.family AND chosen.setting = surface.setting
CROSS JOIN (SELECT DISTINCT seed FROM units_before) AS seeds
WHERE surface.split = 'test'
