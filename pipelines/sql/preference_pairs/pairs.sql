-- One row per pair: a correct kernel, and one of the same task that is slower by the margin or wrong.
-- A kernel is slower by the margin where the lower end of the interval of their ratio, low of the
-- faster by reach of the slower one, is at least $margin.
-- A draw takes the chosen kernel uniformly among those that beat some other one by the margin (or,
-- against wrong ones, among all), then the rejected one uniformly among those that it beats.
-- `eligible` (task_id, kernel_id, score, low, reach) and `wrong` (task_id, kernel_id, status) are registered.
WITH placed AS (
    SELECT
        task_id, kernel_id, score, low, reach,
        row_number() OVER (PARTITION BY task_id ORDER BY reach, kernel_id) - 1 AS place
    FROM eligible
),
steps AS (
    SELECT task_id, reach, max(place) + 1 AS up_to
    FROM placed
    GROUP BY task_id, reach
),
winners AS (
    SELECT
        placed.task_id, placed.kernel_id, placed.score, steps.up_to AS beaten,
        row_number() OVER (PARTITION BY placed.task_id ORDER BY placed.place) - 1 AS turn
    FROM placed
    ASOF INNER JOIN steps
        ON steps.task_id = placed.task_id AND placed.low / $margin >= steps.reach
),
failed AS (
    SELECT
        task_id, kernel_id, status,
        row_number() OVER (PARTITION BY task_id ORDER BY kernel_id) - 1 AS turn
    FROM wrong
),
sizes AS (
    SELECT kernels.task_id, kernels.kernels, winners.winners, failed.failures
    FROM (SELECT task_id, count(*) AS kernels FROM placed GROUP BY task_id) AS kernels
    LEFT JOIN (SELECT task_id, count(*) AS winners FROM winners GROUP BY task_id) AS winners
        ON winners.task_id = kernels.task_id
    LEFT JOIN (SELECT task_id, count(*) AS failures FROM failed GROUP BY task_id) AS failed
        ON failed.task_id = kernels.task_id
),
draws AS (
    SELECT *, unnest(range(CAST($per_task AS BIGINT))) AS draw
    FROM sizes
),
-- The turns of a draw are columns before a join compares them: a condition on both sides would join
-- all draws and kernels of a task.
turns AS (
    SELECT
        task_id, draw,
        (md5_number_lower(concat_ws(':', $seed, 'faster', task_id, draw)) % winners)::BIGINT
            AS winner,
        (md5_number_lower(concat_ws(':', $seed, 'right', task_id, draw)) % kernels)::BIGINT
            AS place,
        (md5_number_lower(concat_ws(':', $seed, 'wrong', task_id, draw)) % failures)::BIGINT
            AS failure
    FROM draws
),
won AS (
    SELECT
        turns.task_id, turns.draw, winners.kernel_id, winners.score,
        (
            md5_number_lower(concat_ws(':', $seed, 'slower', turns.task_id, turns.draw))
            % winners.beaten
        )::BIGINT AS place
    FROM turns
    INNER JOIN winners ON winners.task_id = turns.task_id AND winners.turn = turns.winner
    WHERE $rejected IN ('slower', 'both')
),
slower AS (
    SELECT
        won.task_id, won.draw, 'slower' AS kind,
        won.kernel_id AS chosen_kernel_id, won.score AS chosen_score,
        placed.kernel_id AS rejected_kernel_id, placed.score AS rejected_score,
        'correct' AS rejected_status
    FROM won
    INNER JOIN placed ON placed.task_id = won.task_id AND placed.place = won.place
),
against_wrong AS (
    SELECT
        turns.task_id, turns.draw, 'wrong' AS kind,
        placed.kernel_id AS chosen_kernel_id, placed.score AS chosen_score,
        failed.kernel_id AS rejected_kernel_id, CAST(NULL AS DOUBLE) AS rejected_score,
        failed.status AS rejected_status
    FROM turns
    INNER JOIN placed ON placed.task_id = turns.task_id AND placed.place = turns.place
    INNER JOIN failed ON failed.task_id = turns.task_id AND failed.turn = turns.failure
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
