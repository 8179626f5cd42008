-- Units of the search: one row per test task, training and arm, the mean over chains of the logarithm of
-- the best speedup after the last round, that of the first exemplars included. Reads `attempts` and
-- `surface`.
WITH tried AS (
    SELECT seed, arm, task_id, draw, setting
    FROM attempts
    UNION ALL
    SELECT seed, arm, task_id, draw, unnest(shown) AS setting
    FROM attempts
    WHERE round = 1
),
best AS (
    SELECT tried.seed, tried.arm, tried.task_id, tried.draw, max(surface.outcome) AS outcome
    FROM tried
    INNER JOIN surface ON surface.task_id = tried.task_id AND surface.setting = tried.setting
    GROUP BY tried.seed, tried.arm, tried.task_id, tried.draw
)
SELECT arm, task_id, seed, avg(outcome) AS score, count(*) AS prompts
FROM best
GROUP BY arm, task_id, seed
