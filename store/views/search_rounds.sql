-- One row per run of a search and round: the seconds of the round.
-- A round that was killed has no metric. It counts from the end of the round before, or from the start
-- of its run, until its last stored attempt.
--
-- round: round of the search
-- seconds: seconds that the round took
WITH finished AS (
    SELECT run_id, step AS round, value AS seconds, created_at
    FROM metrics
    WHERE "name" = 'search/seconds'
),
ends AS (
    SELECT run_id, max(created_at) AS finished_at
    FROM finished
    GROUP BY run_id
),
unfinished AS (
    SELECT generations.run_id, max(generations.step) AS round, max(generations.created_at) AS last_at
    FROM generations
    INNER JOIN runs
        ON runs.run_id = generations.run_id AND runs.kind = 'rollout' AND runs."name" = 'search'
    ANTI JOIN finished
        ON finished.run_id = generations.run_id AND finished.round = generations.step
    GROUP BY generations.run_id
)
SELECT run_id, round, seconds
FROM finished
UNION ALL
SELECT
    unfinished.run_id, unfinished.round,
    greatest(epoch(unfinished.last_at) - epoch(coalesce(ends.finished_at, runs.started_at)), 0) AS seconds
FROM unfinished
INNER JOIN runs ON runs.run_id = unfinished.run_id
LEFT JOIN ends ON ends.run_id = unfinished.run_id
