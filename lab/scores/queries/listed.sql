-- What the search has to beat: its chains with a list of three settings for each family instead of a
-- model. Each setting of the list is the one with which the best of the list so far has the highest mean
-- outcome over the shapes of the train grid. Columns are those of rounds.sql. Reads `attempts` and
-- `surface`.
WITH RECURSIVE known AS (
    SELECT family, shape, setting, avg(outcome) AS outcome
    FROM surface
    WHERE split = 'train'
    GROUP BY family, shape, setting
),
listed AS (
    SELECT DISTINCT 0 AS round, family, shape, NULL::VARCHAR AS setting, '-infinity'::DOUBLE AS best
    FROM known
    UNION ALL
    SELECT round, family, shape, setting, best
    FROM (
        SELECT
            listed.round + 1 AS round, known.family, known.shape, known.setting,
            greatest(known.outcome, listed.best) AS best,
            avg(greatest(known.outcome, listed.best))
                OVER (PARTITION BY known.family, known.setting) AS mean
        FROM listed
        INNER JOIN known ON known.family = listed.family AND known.shape = listed.shape
        WHERE listed.round < 3
    )
    QUALIFY setting = first_value(setting) OVER (
        PARTITION BY family ORDER BY mean DESC, setting DESC
    )
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
    INNER JOIN (SELECT DISTINCT family, round, setting FROM listed WHERE round > 0) AS listed
        ON listed.family = tasks.family
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
