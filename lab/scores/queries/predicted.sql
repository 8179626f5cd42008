-- Held-out kernels beside what the train grid predicts: for each test task, the setting with the best
-- mean outcome on the train tasks of its family and shape. A task counts as faster if the search of arm
-- `right` found a setting whose speedup is more than 2 % above. Reads `attempts` and `surface`.
WITH known AS (
    SELECT family, shape, setting, avg(outcome) AS outcome
    FROM surface
    WHERE split = 'train'
    GROUP BY family, shape, setting
),
predicted AS (
    SELECT family, shape, arg_max(setting, (outcome, setting)) AS setting
    FROM known
    GROUP BY family, shape
),
tested AS (
    SELECT
        surface.task_id,
        max(surface.outcome) AS best,
        max(surface.outcome) FILTER (WHERE surface.setting = predicted.setting) AS predicted
    FROM surface
    INNER JOIN predicted ON predicted.family = surface.family AND predicted.shape = surface.shape
    WHERE surface.split = 'test'
    GROUP BY surface.task_id
),
found AS (
    SELECT attempts.seed, attempts.task_id, max(surface.outcome) AS outcome
    FROM attempts
    INNER JOIN surface
        ON surface.task_id = attempts.task_id AND surface.setting = attempts.setting
    WHERE attempts.arm = 'right'
    GROUP BY attempts.seed, attempts.task_id
)
SELECT
    found.seed,
    count(*) AS tasks,
    round(exp(avg(tested.predicted)), 4) AS predicted,
    round(exp(avg(found.outcome)), 4) AS found,
    round(exp(avg(tested.best)), 4) AS best,
    count(*) FILTER (WHERE found.outcome > tested.predicted + ln(1.02)) AS faster,
    count(*) FILTER (WHERE tested.best > tested.predicted + ln(1.02)) AS could_be_faster
FROM found
INNER JOIN tested ON tested.task_id = found.task_id
GROUP BY found.seed
ORDER BY found.seed
