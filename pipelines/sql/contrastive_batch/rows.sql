-- One row per distinct prompt: the exemplars in the order shown, with their scores as shown.
-- The order is drawn as well, so that the place in the prompt says nothing about the speed. With
-- strategy shuffled, the scores are in an order of their own, which another hash draws.
-- checks is the number of seeds of inputs with which the newest evaluation of a measured kernel compared
-- its answers. The reference stands beside the kernels of a prompt with fewer of them than asked for, if all of
-- them differ from it.
-- `exemplars` (row_index, task_id, draw, kernel_id, score, beside_reference) is registered, and
-- `eligible` (task_id, score_low, score_high, workload_id, shapes, scored_on, implied) defined.
WITH task_workloads AS (
    SELECT task_id, min(workload_id) AS workload_id
    FROM eligible
    GROUP BY task_id
),
scored AS (
    SELECT eligible.*
    FROM eligible
    SEMI JOIN exemplars ON exemplars.kernel_id = eligible.kernel_id
),
checks AS (
    SELECT scored.task_id, scored.kernel_id, len(evaluations.seeds) AS checks
    FROM evaluations
    INNER JOIN scored
        ON
            scored.evaluation_id = evaluations.evaluation_id
            AND scored.kernel_id = evaluations.kernel_id
            AND scored.task_id = evaluations.task_id
),
gathered AS (
    SELECT
        exemplars.row_index, exemplars.task_id, exemplars.draw,
        coalesce(
            list(
                {
                    'kernel_id': exemplars.kernel_id, 'score': round(exemplars.score, 2),
                    'low': scored.score_low, 'high': scored.score_high,
                    'checks': checks.checks,
                    'beside_reference': exemplars.beside_reference,
                    'scored_on': scored.scored_on, 'implied': scored.implied,
                    -- The worst speedup would tell which score is whose.
                    'shapes': CASE WHEN $strategy <> 'shuffled' THEN scored.shapes END
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
    LEFT JOIN scored
        ON scored.task_id = exemplars.task_id AND scored.kernel_id = exemplars.kernel_id
    LEFT JOIN checks
        ON checks.task_id = exemplars.task_id AND checks.kernel_id = exemplars.kernel_id
    GROUP BY exemplars.row_index, exemplars.task_id, exemplars.draw
),
shuffled AS (
    SELECT
        *,
        CASE
            WHEN $strategy = 'shuffled'
                THEN list_sort(list_transform(
                    shown,
                    lambda one, place: {
                        'turn': md5_number_lower(concat_ws(
                            ':', $seed, 'shuffled', task_id, draw, place
                        )),
                        'score': one.score, 'low': one.low, 'high': one.high
                    }
                ))
            ELSE list_transform(
                shown,
                lambda one: {'turn': 0, 'score': one.score, 'low': one.low, 'high': one.high}
            )
        END AS scores
    FROM gathered
)
SELECT
    gathered.task_id,
    list_transform(gathered.shown, lambda one: one.kernel_id) AS kernel_ids,
    list_transform(gathered.shown, lambda one: one.kernel_id) AS exemplar_kernel_ids,
    list_transform(gathered.scores, lambda one: one.score) AS exemplar_scores,
    list_transform(gathered.scores, lambda one: one.low) AS exemplar_lows,
    list_transform(gathered.scores, lambda one: one.high) AS exemplar_highs,
    list_transform(gathered.shown, lambda one: one.scored_on) AS exemplar_devices,
    list_transform(gathered.shown, lambda one: one.implied) AS exemplar_implied,
    list_transform(gathered.shown, lambda one: one.shapes) AS _exemplar_shapes,
    list_transform(gathered.shown, lambda one: one.checks) AS exemplar_checks,
    len(gathered.shown) BETWEEN 1 AND $exemplars - 1
    AND list_bool_and(list_transform(gathered.shown, lambda one: one.beside_reference))
        AS reference_shown,
    gathered.draw,
    $strategy AS strategy,
    $evidence AS evidence,
    CAST($device AS VARCHAR) AS device,
    $baseline AS baseline,
    task_workloads.workload_id,
    workloads.axes AS _axes
FROM shuffled AS gathered
LEFT JOIN task_workloads ON task_workloads.task_id = gathered.task_id
LEFT JOIN workloads ON workloads.workload_id = task_workloads.workload_id
QUALIFY row_number() OVER (
    PARTITION BY gathered.task_id, gathered.shown ORDER BY gathered.row_index
) = 1
ORDER BY gathered.row_index
