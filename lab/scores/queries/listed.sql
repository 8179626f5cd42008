-- What the search has to beat: its chains with a list of three settings for each family instead of a
-- model. Each setting of the list is the one with which the best of the list so far has the highest mean
-- outcome over the shapes of the train grid. Columns are those of rounds.sql. Reads `attempts` and
-- `surface`.
WITH known AS (
    SELECT family, shape, setting, avg(outcome) AS outcome
    FROM surface
    WHERE split = 'train'
    GROUP BY family, shape, setting
),
first AS (
    SELECT family, arg_max(setting, (outcome, setting)) AS setting
    FROM (SELECT family, setting, avg(outcome) AS outcome FROM known GROUP BY family, setting)
    GROUP BY family
),
after_first AS (
    SELECT known.family, known.shape, known.outcome AS best
    FROM known
    INNER JOIN first ON first.family = known.family AND first.setting = known.setting
),
second AS (
    SELECT family, arg_max(setting, (outcome, setting)) AS setting
    FROM (
        SELECT known.family, known.setting, avg(greatest(known.outcome, after_first.best)) AS outcome
        FROM known
        INNER JOIN after_first
            ON after_first.family = known.family AND after_first.shape = known.shape
        GROUP BY known.family, known.setting
    )
    GROUP BY family
),
after_second AS (
    SELECT known.family, known.shape, greatest(known.outcome, after_first.best) AS best
    FROM known
    INNER JOIN second ON second.family = known.family AND second.setting = known.setting
    INNER JOIN after_first
        ON after_first.family = known.family AND after_first.shape = known.shape
),
third AS (
    SELECT family, arg_max(setting, (outcome, setting)) AS setting
    FROM (
        SELECT known.family, known.setting, avg(greatest(known.outcome, after_second.best)) AS outcome
        FROM known
        INNER JOIN after_second
            ON after_second.family = known.family AND after_second.shape = known.shape
        GROUP BY known.family, known.setting
    )
    GROUP BY family
),
listed AS (
    SELECT 1 AS round, family, setting FROM first
    UNION ALL
    SELECT 2, family, setting FROM second
    UNION ALL
    SELECT 3, family, setting FROM third
),
tried AS (
    SELECT task_id, draw, 0 AS round, unnest(any_value(shown)) AS setting
    FROM attempts
    WHERE round = 1
    GROUP BY task_id, draw
    UNION ALL
    SELECT chains.task_id, chains.draw, listed.round, listed.setting
    FROM (SELECT DISTINCT task_id, draw FROM attempts) AS chains
    INNER JOIN (SELECT DISTINCT task_id, family FROM surface) AS tasks
        ON tasks.task_id = chains.task_id
    INNER JOIN listed ON listed.family = tasks.family
),
chains AS (
    SELECT
        tried.task_id, tried.draw, tried.round,
        max(max(surface.outcome)) OVER (
            PARTITION BY tried.task_id, tried.draw ORDER BY tried.round
        ) AS so_far
    FROM tried
    INNER JOIN surface ON surface.task_id = tried.task_id AND surface.setting = tried.setting
    GROUP BY tried.task_id, tried.draw, tried.round
),
tops AS (
    SELECT task_id, max(outcome) AS outcome
    FROM surface
    GROUP BY task_id
)
SELECT
    'list' AS arm, chains.round,
    count(*) AS chains,
    round(exp(avg(chains.so_far)), 4) AS best_so_far,
    round(avg((chains.so_far >= tops.outcome)::INTEGER), 4) AS have_the_best
FROM chains
INNER JOIN tops ON tops.task_id = chains.task_id
GROUP BY chains.round
ORDER BY chains.round
