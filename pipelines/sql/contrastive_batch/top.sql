-- The fastest kernels of the task that differ: each draw begins with the next fastest kernel.
-- After each kernel comes the fastest of those that it differs from and is faster than.
-- `placed`, with one bucket per score, and `draws` (row_index, task_id, draw) are registered.
-- Grows at RECURSIVE_CTE: each step adds a kernel to each draw.
WITH RECURSIVE kernels AS (
    SELECT
        *,
        row_number() OVER (PARTITION BY task_id ORDER BY score, kernel_id DESC) AS place
    FROM placed
    WHERE shown
),
reached AS (
    SELECT task_id, reach, max(place) AS place
    FROM kernels
    WHERE paired
    GROUP BY task_id, reach
),
fastest_reached AS (
    SELECT task_id, reach, max(place) OVER (PARTITION BY task_id ORDER BY reach) AS place
    FROM reached
),
linked AS (
    SELECT kernels.*, fastest_reached.place AS next_place
    FROM kernels
    ASOF LEFT JOIN fastest_reached
        ON fastest_reached.task_id = kernels.task_id AND kernels.low > fastest_reached.reach
),
ranked AS (
    SELECT
        task_id, kernel_id, score, beside_reference, next_place,
        row_number() OVER (PARTITION BY task_id ORDER BY place DESC) - 1 AS draw
    FROM linked
    WHERE NOT paired OR next_place IS NOT NULL
),
picks AS (
    SELECT
        draws.row_index, draws.task_id, draws.draw, ranked.kernel_id, ranked.score,
        ranked.beside_reference, ranked.next_place, CAST(1 AS BIGINT) AS taken
    FROM draws
    INNER JOIN ranked ON ranked.task_id = draws.task_id AND ranked.draw = draws.draw
    UNION ALL
    SELECT
        picks.row_index, picks.task_id, picks.draw, linked.kernel_id, linked.score,
        linked.beside_reference, linked.next_place, picks.taken + 1
    FROM picks
    INNER JOIN linked ON linked.task_id = picks.task_id AND linked.place = picks.next_place
    WHERE picks.taken < $exemplars
)
SELECT row_index, task_id, draw, kernel_id, score, beside_reference
FROM picks
