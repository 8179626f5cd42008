-- What a reader could reach that knows the train grid alone: it takes the labels of a prompt for right,
-- computes by Bayes' rule which shape of the family they come from, and takes the setting with the
-- highest expected outcome. unbound: the same for a reader that does not know which of the two labels
-- belongs to which of the two settings. Errors of logarithms of labels are normal, with a standard
-- deviation of 0.1 and that of rounding to two decimals. One row per arm. Reads `arms` and `surface`.
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
        greatest(unnest(shown_scores), 0.005) AS label,
        greatest(unnest(list_reverse(shown_scores)), 0.005) AS other_label
    FROM places
    WHERE shown_scores IS NOT NULL
),
fits AS (
    SELECT
        labels.task_id, labels.arm, labels.draw, known.shape,
        sum(-0.5 * ((ln(labels.label) - known.outcome) / (0.1 + 0.003 / labels.label)) ** 2)
            AS as_shown,
        sum(
            -0.5 * ((ln(labels.other_label) - known.outcome) / (0.1 + 0.003 / labels.other_label)) ** 2
        ) AS exchanged
    FROM labels
    INNER JOIN known
        ON known.family = labels.family AND known.setting = labels.setting
    GROUP BY labels.task_id, labels.arm, labels.draw, known.shape
),
readings AS (
    SELECT
        places.task_id, places.arm, places.draw, places.family, shapes.shape,
        unnest(['bound', 'unbound']) AS reader,
        coalesce(
            unnest([
                fits.as_shown,
                -- The logarithm of the sum of both likelihoods.
                greatest(fits.as_shown, fits.exchanged)
                + ln(1 + exp(-abs(fits.as_shown - fits.exchanged)))
            ]),
            0
        ) AS fit
    FROM places
    INNER JOIN (SELECT DISTINCT family, shape FROM known) AS shapes
        ON shapes.family = places.family
    LEFT JOIN fits
        ON
            fits.task_id = places.task_id AND fits.arm = places.arm
            AND fits.draw = places.draw AND fits.shape = shapes.shape
),
chances AS (
    SELECT
        task_id, arm, draw, family, shape, reader,
        exp(fit - max(fit) OVER (PARTITION BY task_id, arm, draw, reader)) AS chance
    FROM readings
),
hopes AS (
    SELECT
        chances.task_id, chances.arm, chances.draw, chances.reader, known.setting,
        sum(chances.chance * known.outcome) / sum(chances.chance) AS hope
    FROM chances
    INNER JOIN known ON known.family = chances.family AND known.shape = chances.shape
    GROUP BY chances.task_id, chances.arm, chances.draw, chances.reader, known.setting
),
choices AS (
    SELECT task_id, arm, draw, reader, arg_max(setting, (hope, setting)) AS setting
    FROM hopes
    GROUP BY task_id, arm, draw, reader
)
SELECT
    arm,
    round(exp(avg(score) FILTER (WHERE reader = 'bound')), 4) AS geomean,
    round(exp(avg(score) FILTER (WHERE reader = 'unbound')), 4) AS unbound
FROM (
    SELECT choices.arm, choices.reader, choices.task_id, avg(surface.outcome) AS score
    FROM choices
    INNER JOIN surface
        ON surface.task_id = choices.task_id AND surface.setting = choices.setting
    GROUP BY choices.arm, choices.reader, choices.task_id
)
GROUP BY arm
ORDER BY geomean DESC, arm
