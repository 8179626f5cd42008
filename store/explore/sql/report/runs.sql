-- Runs of training and sampling
-- The newest twenty runs; store report --run RUN writes a report about one. attempts counts
-- completions.
-- Empty: Nothing has been trained or sampled yet: trainers list.
WITH written AS (
    SELECT
        run_id, count(*) AS attempts, count(DISTINCT kernel_id) AS kernels,
        count(DISTINCT task_id) AS tasks
    FROM generations
    GROUP BY run_id
),
logged AS (
    SELECT run_id, max(step) AS "last step logged"
    FROM metrics
    GROUP BY run_id
)
SELECT
    runs.run_id, runs."name" AS run, runs.kind, runs.started_at AS started,
    states.state, states.ended_at AS ended, runs.snapshot_id AS "snapshot read",
    coalesce(written.attempts, 0) AS attempts, coalesce(written.kernels, 0) AS kernels,
    coalesce(written.tasks, 0) AS tasks, logged."last step logged",
    count(*) OVER () AS total
FROM runs
INNER JOIN run_states AS states ON states.run_id = runs.run_id
LEFT JOIN written ON written.run_id = runs.run_id
LEFT JOIN logged ON logged.run_id = runs.run_id
WHERE runs.kind IN ('training', 'rollout')
ORDER BY runs.started_at DESC, runs.run_id
LIMIT 20
