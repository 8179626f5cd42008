-- Which shape an answer is for, by arm: the share of probability on the settings that are best on the
-- train tasks of the task's own shape, how often no other shape of its family has a larger share, and
-- the share on those of any shape. Reads `prompts`, `arms` and `surface`.
WITH targets AS (
    SELECT family, setting, list(DISTINCT shape) AS shapes
    FROM (
        SELECT family, shape, arg_max(setting, (outcome, setting)) AS setting
        FROM surface
        WHERE split = 'train'
        GROUP BY family, shape, task_id
    )
    GROUP BY family, setting
),
places AS (
    SELECT prompt_id, family, unnest(places, max_depth := 2)
    FROM arms
),
shares AS (
    SELECT
        seed, prompt_id, setting,
        sum(probability::DOUBLE) / sum(sum(probability::DOUBLE)) OVER (PARTITION BY seed, prompt_id)
            AS share
    FROM prompts
    GROUP BY seed, prompt_id, setting
),
answers AS (
    SELECT shares.seed, places.arm, places.task_id, places.draw, shares.share, targets.shapes
    FROM places
    INNER JOIN shares ON shares.prompt_id = places.prompt_id
    INNER JOIN targets ON targets.family = places.family AND targets.setting = shares.setting
),
by_shape AS (
    SELECT seed, arm, task_id, draw, shape, sum(share) AS share
    FROM (SELECT * EXCLUDE (shapes), unnest(shapes) AS shape FROM answers)
    GROUP BY seed, arm, task_id, draw, shape
),
judged AS (
    SELECT
        by_shape.seed, by_shape.arm, by_shape.task_id, by_shape.draw,
        coalesce(max(by_shape.share) FILTER (WHERE by_shape.shape = tasks.shape), 0) AS own_share,
        max(by_shape.share) AS largest
    FROM by_shape
    INNER JOIN (SELECT DISTINCT task_id, shape FROM surface) AS tasks
        ON tasks.task_id = by_shape.task_id
    GROUP BY by_shape.seed, by_shape.arm, by_shape.task_id, by_shape.draw
),
of_any AS (
    SELECT seed, arm, task_id, draw, sum(share) AS share
    FROM answers
    GROUP BY seed, arm, task_id, draw
)
SELECT
    judged.arm,
    round(avg(judged.own_share), 4) AS own_shape,
    round(avg((judged.own_share >= judged.largest - 1e-12)::INTEGER), 4) AS own_is_largest,
    round(avg(of_any.share), 4) AS any_shape
FROM judged
INNER JOIN of_any
    ON
        of_any.seed = judged.seed AND of_any.arm = judged.arm
        AND of_any.task_id = judged.task_id AND of_any.draw = judged.draw
GROUP BY judged.arm
ORDER BY own_shape DESC
