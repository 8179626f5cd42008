-- Runs
-- Imports, trainings, rollouts, evaluations, pipelines and audits, newest first. Training and
-- rollout runs have attempts. The page of an open run says whether it still runs.
-- Empty: No run matches.
WITH attempts AS (
    SELECT
        run_id, count(*) AS attempts, count(DISTINCT kernel_id) AS kernels,
        max("step") AS last_step
    FROM generations
    GROUP BY run_id
),
judged AS (
    SELECT run_id, count(*) AS evaluations
    FROM evaluations
    GROUP BY run_id
)
SELECT
    runs.name || ' ' || left(runs.run_id, 8) AS run, runs.kind, states.state, runs.started_at,
    states.ended_at,
    attempts.attempts, attempts.kernels, attempts.last_step, judged.evaluations, runs."version",
    runs.snapshot_id, runs.run_id, count(*) OVER () AS total,
    count(*) FILTER (WHERE states.state = 'open') OVER () AS open_runs
FROM runs
INNER JOIN run_states AS states ON states.run_id = runs.run_id
LEFT JOIN attempts ON attempts.run_id = runs.run_id
LEFT JOIN judged ON judged.run_id = runs.run_id
WHERE true
    AND runs.kind = $kind
    AND contains(lower(runs.name), lower($q))
ORDER BY runs.started_at DESC, runs.run_id
