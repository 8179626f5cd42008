-- One row per prompt to make: its task and the number of the draw; first every task once, then again.
-- `candidates` is registered: the tasks that have something to show.
SELECT
    row_number() OVER (ORDER BY draw, place, task_id) - 1 AS row_index,
    task_id,
    draw
FROM (
    SELECT
        candidates.task_id,
        unnest(range(CAST($per_task AS BIGINT))) AS draw,
        md5_number_lower(concat_ws(':', $seed, 'task', candidates.task_id)) AS place
    FROM candidates
)
QUALIFY row_index < $limit
