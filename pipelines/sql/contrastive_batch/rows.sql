-- One row per distinct prompt: the exemplars in the order shown, with their scores as shown.
-- The order is drawn as well, so that the place in the prompt says nothing about the speed. With
-- strategy shuffled, the scores are in an order of their own, which another hash draws.
-- `exemplars` (row_index, task_id, draw, kernel_id, score) is registered, and `eligible` (task_id,
-- workload_id, shapes, scored_on, implied) defined.
WITH task_workloads AS (
    SELECT task_id, min(workload_id) AS workload_id
    FROM eligible
    GROUP BY task_id
),
gathered AS (
    SELECT
        exemplars.row_index, exemplars.task_id, exemplars.draw,
        coalesce(
            list(
                {
                    'kernel_id': exemplars.kernel_id, 'score': round(exemplars.score, 2),
                    'scored_on': eligible.scored_on, 'implied': eligible.implied,
                    -- The worst speedup would tell which score is whose.
                    'shapes': CASE WHEN $strategy <> 'shuffled' THEN eligible.shapes END
                }
                ORDER BY md5_number_lower(
                    concat_ws(
                        ':', $seed, 'shown', exemplars.task_id, exemplars.draw, exemplars.kernel_id
                    )
                )
            ) FILTER (WHERE exemplars.kernel_id IS NOT NULL),
            []
        ) AS shown
    FROM exemplars
    LEFT JOIN eligible
        ON eligible.task_id = exemplars.task_id AND eligible.kernel_id = exemplars.kernel_id
    GROUP BY exemplars.row_index, exemplars.task_id, exemplars.draw
)
SELECT
    gathered.task_id,
    list_transform(gathered.shown, lambda one: one.kernel_id) AS kernel_ids,
    list_transform(gathered.shown, lambda one: one.kernel_id) AS exemplar_kernel_ids,
    CASE
        WHEN $strategy = 'shuffled'
            THEN list_transform(
                list_sort(list_transform(
                    gathered.shown,
                    lambda one, place: {
                        'turn': md5_number_lower(concat_ws(
                            ':', $seed, 'shuffled', gathered.task_id, gathered.draw, place
                        )),
                        'score': one.score
                    }
                )),
                lambda one: one.score
            )
        ELSE list_transform(gathered.shown, lambda one: one.score)
    END AS exemplar_scores,
    list_transform(gathered.shown, lambda one: one.scored_on) AS exemplar_devices,
    list_transform(gathered.shown, lambda one: one.implied) AS exemplar_implied,
    list_transform(gathered.shown, lambda one: one.shapes) AS _exemplar_shapes,
    len(gathered.shown) BETWEEN 1 AND $exemplars - 1 AS reference_shown,
    gathered.draw,
    $strategy AS strategy,
    $evidence AS evidence,
    CAST($device AS VARCHAR) AS device,
    $baseline AS baseline,
    task_workloads.workload_id,
    workloads.axes AS _axes
FROM gathered
LEFT JOIN task_workloads ON task_workloads.task_id = gathered.task_id
LEFT JOIN workloads ON workloads.workload_id = task_workloads.workload_id
QUALIFY row_number() OVER (
    PARTITION BY gathered.task_id, gathered.shown ORDER BY gathered.row_index
) = 1
ORDER BY gathered.row_index
