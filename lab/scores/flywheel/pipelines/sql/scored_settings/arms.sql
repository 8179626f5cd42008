-- The prompts of the arms. For every task, $draws pairs of settings are drawn without replacement; four
-- arms show the same pairs in the same order. `other_task` shows the same settings as kernels of
-- another task of the family, with another shape and another operation. Without sizes, prompts of
-- several tasks may be equal, so a row is a text, and `places` are the tasks, arms and draws that it
-- serves. `surface` and `asked` (task_id) are registered. Parameters: seed, draws.
WITH asked_surface AS (
    SELECT surface.*
    FROM surface
    SEMI JOIN asked ON asked.task_id = surface.task_id
),
pairs AS (
    SELECT
        one.task_id, one.family, one.shape, one.operation,
        CASE WHEN swapped THEN [other.setting, one.setting]
            ELSE [one.setting, other.setting] END AS settings,
        CASE WHEN swapped THEN [other.kernel_id, one.kernel_id]
            ELSE [one.kernel_id, other.kernel_id] END AS exemplars,
        CASE WHEN swapped THEN [other.shown_score, one.shown_score]
            ELSE [one.shown_score, other.shown_score] END AS scores,
        row_number() OVER (PARTITION BY one.task_id ORDER BY drawn) AS draw
    FROM (
        SELECT
            one, other,
            md5(concat_ws(':', $seed, one.task_id, one.setting, other.setting)) AS drawn,
            md5_number_lower(concat_ws(':', $seed, 'order', one.task_id, one.setting, other.setting))
            % 2 = 1 AS swapped
        FROM asked_surface AS one
        INNER JOIN asked_surface AS other
            ON
                other.task_id = one.task_id
                AND other.setting > one.setting
                AND other.shown_score <> one.shown_score
    )
    QUALIFY draw <= $draws
),
donors AS (
    SELECT
        pairs.task_id, pairs.draw, pairs.settings,
        [one.kernel_id, other.kernel_id] AS exemplars,
        [one.shown_score, other.shown_score] AS scores
    FROM pairs
    INNER JOIN asked_surface AS one
        ON
            one.family = pairs.family AND one.shape <> pairs.shape
            AND one.operation <> pairs.operation AND one.setting = pairs.settings[1]
    INNER JOIN asked_surface AS other
        ON other.task_id = one.task_id AND other.setting = pairs.settings[2]
    WHERE one.shown_score <> other.shown_score
    QUALIFY row_number() OVER (
        PARTITION BY pairs.task_id, pairs.draw
        ORDER BY md5(concat_ws(':', $seed, 'donor', pairs.task_id, pairs.draw, one.task_id))
    ) = 1
),
arms AS (
    SELECT task_id, draw, 'right' AS arm, settings, exemplars, scores, scores AS shown FROM pairs
    UNION ALL
    SELECT task_id, draw, 'reversed', settings, exemplars, scores, list_reverse(scores) FROM pairs
    UNION ALL
    SELECT task_id, draw, 'no_scores', settings, exemplars, scores, NULL FROM pairs
    UNION ALL
    SELECT task_id, draw, 'other_task', settings, exemplars, scores, scores FROM donors
    UNION ALL
    SELECT task_id, 1 AS draw, 'none', [], [], [], NULL FROM asked
),
texts AS (
    SELECT
        arms.*, asked_tasks.family, asked_tasks.operation,
        regexp_replace(tasks.code, '(?m)^(ROWS|COLS) = \d+$', '\1', 'g') AS reference
    FROM arms
    INNER JOIN (
        SELECT task_id, any_value(family) AS family, any_value(operation) AS operation
        FROM asked_surface
        GROUP BY task_id
    ) AS asked_tasks ON asked_tasks.task_id = arms.task_id
    INNER JOIN tasks ON tasks.task_id = arms.task_id
)
SELECT
    min(task_id) AS task_id,
    exemplars AS kernel_ids,
    settings,
    shown AS shown_scores,
    family,
    operation,
    list(
        {'task_id': task_id, 'arm': arm, 'draw': draw, 'right_scores': scores}
        ORDER BY task_id, arm, draw
    ) AS places
FROM texts
GROUP BY family, operation, reference, settings, exemplars, shown
ORDER BY family, min(task_id), min(draw), exemplars, shown
