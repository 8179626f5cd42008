-- One row per pair: a correct kernel, and one of the same task that is slower by the margin or wrong.
-- A draw takes the chosen kernel uniformly among those that beat some other one by the margin (or,
-- against wrong ones, among all), then the rejected one uniformly among those that it beats.
-- `eligible` (task_id, kernel_id, score) and `wrong` (task_id, kernel_id, status) are registered.
WITH placed AS (
    SELECT
        task_id, kernel_id, score,
        row_number() OVER (PARTITION BY task_id ORDER BY score, kernel_id) - 1 AS place
    FROM eligible
),
steps AS (
    SELECT task_id, score, max(place) + 1 AS up_to
    FROM placed
    GROUP BY task_id, score
),
winners AS (
    SELECT
        placed.task_id, placed.kernel_id, placed.score, steps.up_to AS beaten,
        row_number() OVER (PARTITION BY placed.task_id ORDER BY placed.place) - 1 AS turn,
        count(*) OVER (PARTITION BY placed.task_id) AS winners
    FROM placed
    ASOF INNER JOIN steps
        ON steps.task_id = placed.task_id AND placed.score / $margin >= steps.score
),
draws AS (
    SELECT task_id, unnest(range(CAST($per_task AS BIGINT))) AS draw
    FROM (SELECT DISTINCT task_id FROM eligible)
),
slower AS (
    SELECT
        draws.task_id, draws.draw, 'slower' AS kind,
        winners.kernel_id AS chosen_kernel_id, winners.score AS chosen_score,
        placed.kernel_id AS rejected_kernel_id, placed.score AS rejected_score,
        'correct' AS rejected_status
    FROM draws
    INNER JOIN winners
        ON
            winners.task_id = draws.task_id
            AND winners.turn = (
                md5_number_lower(concat_ws(':', $seed, 'faster', draws.task_id, draws.draw))
                % winners.winners
            )::BIGINT
    INNER JOIN placed
        ON
            placed.task_id = draws.task_id
            AND placed.place = (
                md5_number_lower(concat_ws(':', $seed, 'slower', draws.task_id, draws.draw))
                % winners.beaten
            )::BIGINT
    WHERE $rejected IN ('slower', 'both')
),
failed AS (
    SELECT
        task_id, kernel_id, status,
        row_number() OVER (PARTITION BY task_id ORDER BY kernel_id) - 1 AS turn,
        count(*) OVER (PARTITION BY task_id) AS failures
    FROM wrong
),
sizes AS (
    SELECT task_id, count(*) AS kernels
    FROM placed
    GROUP BY task_id
),
against_wrong AS (
    SELECT
        draws.task_id, draws.draw, 'wrong' AS kind,
        placed.kernel_id AS chosen_kernel_id, placed.score AS chosen_score,
        failed.kernel_id AS rejected_kernel_id, CAST(NULL AS DOUBLE) AS rejected_score,
        failed.status AS rejected_status
    FROM draws
    INNER JOIN sizes ON sizes.task_id = draws.task_id
    INNER JOIN placed
        ON
            placed.task_id = draws.task_id
            AND placed.place = (
                md5_number_lower(concat_ws(':', $seed, 'right', draws.task_id, draws.draw))
                % sizes.kernels
            )::BIGINT
    INNER JOIN failed
        ON
            failed.task_id = draws.task_id
            AND failed.turn = (
                md5_number_lower(concat_ws(':', $seed, 'wrong', draws.task_id, draws.draw))
                % failed.failures
            )::BIGINT
    WHERE $rejected IN ('wrong', 'both')
),
pairs AS (
    FROM slower
    UNION ALL
    FROM against_wrong
)
SELECT
    task_id,
    [chosen_kernel_id, rejected_kernel_id] AS kernel_ids,
    chosen_kernel_id,
    rejected_kernel_id,
    kind,
    round(chosen_score, 4) AS chosen_score,
    round(rejected_score, 4) AS rejected_score,
    rejected_status,
    $evidence AS evidence,
    $device AS device,
    $baseline AS baseline
FROM pairs
QUALIFY row_number() OVER (
    PARTITION BY task_id, chosen_kernel_id, rejected_kernel_id ORDER BY draw
) = 1
ORDER BY
    draw, md5_number_lower(concat_ws(':', $seed, 'task', task_id)), task_id, kind DESC,
    chosen_kernel_id
