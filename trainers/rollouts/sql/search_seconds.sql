-- One row: the seconds of the rounds of a search of this lake by a policy, with any arms and seeds. A round that a
-- command did not finish has no metric; it counts from the end of the command's round before, or
-- from its start, until its last stored attempt.
WITH searches AS (
    SELECT run_id, started_at
    FROM runs
    WHERE
        kind = 'rollout'
        AND origin IS NULL
        AND "name" = 'search'
        AND json_extract_string(config, '$.search.search') = $1
        AND json_extract_string(config, '$.search.policy_id') = $2
),
finished AS (
    SELECT metrics.run_id, metrics.step, metrics.value, metrics.created_at
    FROM metrics
    SEMI JOIN searches ON searches.run_id = metrics.run_id
    WHERE metrics."name" = 'search/seconds'
),
unfinished AS (
    SELECT generations.run_id, max(generations.created_at) AS last_at
    FROM generations
    SEMI JOIN searches ON searches.run_id = generations.run_id
    ANTI JOIN finished
        ON finished.run_id = generations.run_id AND finished.step = generations.step
    GROUP BY generations.run_id
),
ends AS (
    SELECT run_id, max(created_at) AS finished_at
    FROM finished
    GROUP BY run_id
)
SELECT
    coalesce((SELECT sum(value) FROM finished), 0)
    + coalesce(sum(greatest(
        epoch(unfinished.last_at) - epoch(coalesce(ends.finished_at, searches.started_at)), 0
    )), 0) AS seconds
FROM unfinished
INNER JOIN searches ON searches.run_id = unfinished.run_id
LEFT JOIN ends ON ends.run_id = unfinished.run_id
