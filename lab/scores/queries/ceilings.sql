-- What a reader could reach that knows the train grid alone: it takes the labels of a prompt for right,
-- computes by Bayes' rule which shape of the family they come from, and takes the setting with the
-- highest expected outcome. Errors of logarithms of labels are normal, with a standard deviation of
-- 0.1 and that of rounding to two decimals. One row per arm. Reads `arms` and `surface`.
WITH known AS (
    SELECT family, shape, setting, avg(outcome) AS outcome
    FROM surface
    WHERE split = 'train'
    GROUP BY family, shape, setting
),
places AS (
    SELECT family, settings, shown_scores, unnest(places, max_depth := 2)
    FROM arms
),
labels AS (
    SELECT
        task_id, arm, draw, family,
        unnest(settings) AS setting,
        greatest(unnest(shown_scores), 0.005) AS label
    FROM places
    WHERE shown_scores IS NOT NULL
),
fits AS (
    SELECT
        labels.task_id, labels.arm, labels.draw, known.shape,
        sum(-0.5 * ((ln(labels.label) - known.outcome) / (0.1 + 0.003 / labels.label)) ** 2) AS fit
    FROM labels
    INNER JOIN known
        ON known.family = labels.family AND known.setting = labels.setting
    GROUP BY labels.task_id, labels.arm, labels.draw, known.shape
),
chances AS (
    SELECT
        places.task_id, places.arm, places.draw, places.family, shapes.shape,
        exp(
            coalesce(fits.fit, 0) - max(coalesce(fits.fit, 0)) OVER (
                PARTITION BY places.task_id, places.arm, places.draw
            )
        ) AS chance
    FROM places
    INNER JOIN (SELECT DISTINCT family, shape FROM known) AS shapes
        ON shapes.family = places.family
    LEFT JOIN fits
        ON
            fits.task_id = places.task_id AND fits.arm = places.arm
            AND fits.draw = places.draw AND fits.shape = shapes.shape
),
hopes AS (
    SELECT
        chances.task_id, chances.arm, chances.draw, known.setting,
        sum(chances.chance * known.outcome) / sum(chances.chance) AS hope
    FROM chances
    INNER JOIN known ON known.family = chances.family AND known.shape = chances.shape
    GROUP BY chances.task_id, chances.arm, chances.draw, known.setting
),
choices AS (
    SELECT task_id, arm, draw, arg_max(setting, (hope, setting)) AS setting
    FROM hopes
    GROUP BY task_id, arm, draw
)
SELECT
    arm,
    round(exp(avg(score)), 4) AS geomean
FROM (
    SELECT choices.arm, choices.task_id, avg(surface.outcome) AS score
    FROM choices
    INNER JOIN surface
        ON surface.task_id = choices.task_id AND surface.setting = choices.setting
    GROUP BY choices.arm, choices.task_id
)
GROUP BY arm
ORDER BY geomean DESC
