-- The training rows. Pairs of settings of every task are drawn without replacement, and the tasks
-- take turns: the first $scored pairs show their scores, the next $unscored ones do not, and $bare
-- rows show no kernel. Those are one text for each task, which is one row with several copies. The
-- last kernel of a row is the best one of its task, the answer; `fastest` is the place of the faster
-- exemplar. `surface` and `asked` (task_id) are registered. Parameters: seed, scored, unscored, bare.
WITH best AS (
    SELECT
        surface.task_id,
        arg_max(surface.kernel_id, (surface.speedup, surface.setting)) AS kernel_id,
        row_number() OVER (ORDER BY md5(concat_ws(':', $seed, surface.task_id))) AS place,
        count(*) OVER () AS tasks
    FROM surface
    SEMI JOIN asked ON asked.task_id = surface.task_id
    GROUP BY surface.task_id
),
pairs AS (
    SELECT
        one.task_id,
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
        FROM surface AS one
        INNER JOIN surface AS other
            ON
                other.task_id = one.task_id
                AND other.setting > one.setting
                AND other.shown_score <> one.shown_score
    )
),
numbered AS (
    SELECT pairs.*, row_number() OVER (ORDER BY pairs.draw, best.place) AS number
    FROM pairs
    INNER JOIN best ON best.task_id = pairs.task_id
),
forms AS (
    SELECT
        task_id,
        CASE WHEN number <= $scored THEN 'right' ELSE 'no_scores' END AS form,
        exemplars, scores,
        CASE WHEN scores[1] > scores[2] THEN 1 ELSE 2 END AS fastest,
        1 AS copies, number
    FROM numbered
    WHERE number <= $scored + $unscored
    UNION ALL BY NAME
    SELECT
        task_id, 'none' AS form, []::VARCHAR[] AS exemplars, []::DOUBLE[] AS scores,
        $bare // tasks + (place <= $bare % tasks)::BIGINT AS copies,
        $scored + $unscored + place AS number
    FROM best
)
SELECT
    forms.task_id,
    list_append(forms.exemplars, best.kernel_id) AS kernel_ids,
    forms.form,
    forms.exemplars AS exemplar_kernel_ids,
    forms.scores AS right_scores,
    CASE WHEN forms.form = 'right' THEN forms.scores END AS shown_scores,
    forms.fastest::INTEGER AS fastest,
    forms.copies::INTEGER AS copies
FROM forms
INNER JOIN best ON best.task_id = forms.task_id
WHERE forms.copies > 0
ORDER BY forms.number
