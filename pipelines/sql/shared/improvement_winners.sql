-- One row per prompt to write: the fastest kernel of its task, if it is faster than enough others.
-- A kernel is faster than another where the lower end of the interval of their ratio, low of the one
-- by reach of the other (scores_measured.sql), is at least $margin. The fastest one has the highest
-- lower end. A task has $per_task rows, whose prompts draw their exemplars separately.
-- With $policy or $round, the fastest of the kernels that such a policy wrote is taken.
-- `eligible` (task_id, kernel_id, low, reach) is defined.
WITH placed AS (
    SELECT
        task_id, reach,
        row_number() OVER (PARTITION BY task_id ORDER BY reach, kernel_id) AS place
    FROM eligible
),
steps AS (
    SELECT task_id, reach, max(place) AS slower
    FROM placed
    GROUP BY task_id, reach
),
winners AS (
    SELECT eligible.task_id, eligible.kernel_id, eligible.low
    FROM eligible
    ASOF INNER JOIN steps
        ON steps.task_id = eligible.task_id AND eligible.low / $margin >= steps.reach
    WHERE
        steps.slower >= $exemplars
        AND (
            ($policy IS NULL AND $round IS NULL)
            OR EXISTS (
                SELECT 1
                FROM generations
                INNER JOIN policies ON policies.policy_id = generations.policy_id
                WHERE
                    generations.task_id = eligible.task_id
                    AND generations.kernel_id = eligible.kernel_id
                    AND ($policy IS NULL OR $policy IN (policies.policy_id, policies."name"))
                    AND ($round IS NULL OR policies.round = $round)
            )
        )
),
fastest AS (
    SELECT task_id, kernel_id, low
    FROM winners
    QUALIFY row_number() OVER (PARTITION BY task_id ORDER BY low DESC, kernel_id) = 1
)
SELECT
    concat_ws(':', task_id, kernel_id, turn) AS pair_id,
    task_id,
    kernel_id,
    low,
    turn
FROM (
    SELECT *, unnest(range(1, CAST($per_task AS BIGINT) + 1)) AS turn
    FROM fastest
)
ORDER BY turn, md5_number_lower(concat_ws(':', $seed, 'task', task_id)), task_id
