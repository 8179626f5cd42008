-- Exemplars uniformly out of all scored kernels of the task, without replacement, whatever their score.
-- Floyd's sampling: the t-th pick is uniform among the first (kernels - n + t) places, and the last
-- of these stands in for a place that was picked before. Every subset is equally likely.
-- `eligible` (task_id, kernel_id, score) and `draws` (row_index, task_id, draw) are registered.
WITH RECURSIVE numbered AS (
    SELECT
        task_id, kernel_id, score,
        row_number() OVER (PARTITION BY task_id ORDER BY kernel_id) - 1 AS place
    FROM eligible
),
sizes AS (
    SELECT task_id, count(*) AS kernels, least(count(*), $exemplars) AS wanted
    FROM eligible
    GROUP BY task_id
),
picks AS (
    SELECT
        draws.row_index, draws.task_id, draws.draw, sizes.kernels, sizes.wanted,
        CAST(0 AS BIGINT) AS taken,
        CAST([] AS BIGINT[]) AS places
    FROM draws
    INNER JOIN sizes ON sizes.task_id = draws.task_id
    UNION ALL
    SELECT
        row_index, task_id, draw, kernels, wanted, taken + 1,
        list_append(
            places, CASE WHEN list_contains(places, candidate) THEN last_place ELSE candidate END
        )
    FROM (
        SELECT
            *,
            kernels - wanted + taken AS last_place,
            CAST(
                md5_number_lower(concat_ws(':', $seed, 'random', task_id, draw, taken))
                % (kernels - wanted + taken + 1) AS BIGINT
            ) AS candidate
        FROM picks
        WHERE taken < wanted
    )
),
finished AS (
    SELECT row_index, task_id, draw, unnest(places) AS place
    FROM picks
    WHERE taken = wanted
)
SELECT finished.row_index, finished.task_id, finished.draw, numbered.kernel_id, numbered.score
FROM finished
INNER JOIN numbered
    ON numbered.task_id = finished.task_id AND numbered.place = finished.place
