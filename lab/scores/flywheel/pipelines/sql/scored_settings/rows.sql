-- The training rows. Pairs of settings of every task are drawn without replacement, and the tasks
-- take turns: the first $scored pairs show their scores, the next $unscored ones do not, and $bare
-- rows show no kernel. The last kernel of a row is the best one of its task, the answer; `fastest` is
-- the place of the faster exemplar. Kernels of one operation are equal at all shapes, so that several
-- draws may give one text, which is one row with several copies. `surface` and `asked` (task_id) are
-- registered. Parameters: seed, scored, unscored, bare.
WITH best AS (
    SELECT
        surface.task_id,
        arg_max(surface.kernel_id, (surface.speedup, surface.setting)) AS kernel_id,
        row_number() OVER (ORDER BY md5(concat_ws(':', $seed, surface.task_id))) AS place,
        count(*) OVER () AS tasks
    FROM surface
    SEMI JOIN asked ON asked.task_id = surface.task_id
    WHERE surface.speedup IS NOT NULL
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
),
answered AS (
    SELECT forms.*, list_append(forms.exemplars, best.kernel_id) AS kernel_ids
    FROM forms
    INNER JOIN best ON best.task_id = forms.task_id
)
SELECT
    min(task_id) AS task_id,
    kernel_ids,
    form,
    CASE WHEN form = 'right' THEN scores END AS shown_scores,
    fastest::INTEGER AS fastest,
    arg_min(scores, number) AS right_scores,
    sum(copies)::INTEGER AS copies
FROM answered
WHERE copies > 0
GROUP BY kernel_ids, form, CASE WHEN form = 'right' THEN scores END, fastest
ORDER BY min(number)
