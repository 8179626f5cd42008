-- One row per run: its state, when it began and ended, and its error.
-- state is finished, failed or interrupted by the newest row of the run in run_ends. It is open if
-- the run has no such row, or if the newest one says that the run was resumed: it still runs, or it
-- was killed, which only its lease can tell (store show RUN). An import, a pipeline and a publication
-- are stored once they are complete, and have finished. Other runs without such a row are unknown if
-- they are from before this lake recorded ends, or were pulled. seconds is the time from the first
-- start to the last end, with the pauses of a run that was resumed.
--
-- key columns: run_id, kind, name, state, started_at, seconds, error
-- name: name of the run
-- state: finished, failed, interrupted, open or unknown
-- ended_at: when the run ended; NULL while it is open
-- seconds: seconds from the first start to the last end; NULL while it is open
-- error: first line of the error that ended the run; NULL if none did
-- host: name of the host; NULL if it is unknown
WITH newest AS (
    SELECT
        run_id,
        max({
            'number': number, 'outcome': outcome, 'ended_at': created_at, 'error': error
        }) AS event
    FROM run_ends
    GROUP BY run_id
),
recorded AS (
    -- Ends have been recorded since the lake has followed a catalog with the table for them.
    SELECT min(created_at) AS since
    FROM catalogs
    WHERE json_exists(definition, '$.tables.run_ends')
),
states AS (
    SELECT
        runs.run_id, runs.kind, runs."name", runs.started_at, runs.host, runs.origin,
        CASE
            WHEN newest.event.outcome = 'resumed' THEN 'open'
            WHEN newest.event.outcome IS NOT NULL THEN newest.event.outcome
            WHEN runs.finished_at IS NOT NULL THEN 'finished'
            WHEN runs.kind IN ('import', 'pipeline', 'publish') THEN 'finished'
            WHEN runs.origin IS NULL AND runs.started_at >= recorded.since THEN 'open'
            ELSE 'unknown'
        END AS state,
        coalesce(newest.event.ended_at, runs.finished_at) AS last_at,
        newest.event.error AS error
    FROM runs
    CROSS JOIN recorded
    LEFT JOIN newest ON newest.run_id = runs.run_id
)
SELECT
    run_id, kind, "name", state, started_at,
    CASE WHEN state <> 'open' THEN last_at END AS ended_at,
    CASE
        WHEN state <> 'open' AND last_at IS NOT NULL
            THEN greatest(epoch(last_at) - epoch(started_at), 0)
    END AS seconds,
    error, host, origin
FROM states
