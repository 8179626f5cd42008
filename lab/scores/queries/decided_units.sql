-- Units of decisions: the probabilities of an answer are taken as a belief about the shape, its share of
-- the settings that are best on the train tasks of each shape, and the answer is the setting with the
-- highest expected outcome on the train grid. So this is without what sampling from a belief costs.
-- `constant` is that of constant_units.sql: the decision of a belief that all shapes are as probable.
-- Reads `prompts`, `arms`, `surface` and `units_constant`.
WITH known AS (
    SELECT family, shape, setting, avg(outcome) AS outcome
    FROM surface
    WHERE split = 'train'
    GROUP BY family, shape, setting
),
targets AS (
    -- A setting that is best at several shapes speaks for each of them in equal parts.
    SELECT family, shape, setting, 1 / count(*) OVER (PARTITION BY family, setting) AS part
    FROM (
        SELECT DISTINCT family, shape, arg_max(setting, (outcome, setting)) AS setting
        FROM surface
        WHERE split = 'train'
        GROUP BY family, shape, task_id
    )
),
beliefs AS (
    SELECT
        prompts.seed, prompts.prompt_id, arms.family, targets.shape,
        sum(prompts.probability::DOUBLE * targets.part) AS belief
    FROM prompts
    INNER JOIN arms ON arms.prompt_id = prompts.prompt_id
    INNER JOIN targets ON targets.family = arms.family AND targets.setting = prompts.setting
    GROUP BY prompts.seed, prompts.prompt_id, arms.family, targets.shape
),
hopes AS (
    SELECT
        beliefs.seed, beliefs.prompt_id, known.setting,
        sum(beliefs.belief * known.outcome) AS hope
    FROM beliefs
    INNER JOIN known ON known.family = beliefs.family AND known.shape = beliefs.shape
    GROUP BY beliefs.seed, beliefs.prompt_id, known.setting
),
choices AS (
    SELECT seed, prompt_id, arg_max(setting, (hope, setting)) AS setting
    FROM hopes
    GROUP BY seed, prompt_id
),
places AS (
    SELECT prompt_id, unnest(places, max_depth := 2)
    FROM arms
)
SELECT places.arm, places.task_id, choices.seed, avg(surface.outcome) AS score, count(*) AS prompts
FROM places
INNER JOIN choices ON choices.prompt_id = places.prompt_id
INNER JOIN surface
    ON surface.task_id = places.task_id AND surface.setting = choices.setting
GROUP BY places.arm, places.task_id, choices.seed
UNION ALL
SELECT arm, task_id, seed, score, prompts
FROM units_constant
WHERE arm = 'constant'
