-- One row per kernel shown in a prompt of a run: the score shown and the speedup measured by then.
-- "By then" means committed at or before the snapshot that the prompt was rendered from. session_id
-- is the newest such session that may rank, or the lower one of two that confirm a win, of a
-- workload, device, baseline and clock. speedup is pooled over such sessions of one version of the
-- evaluator (as in pooled_speedups) if this equals the score, or else that of the session, which
-- earlier versions showed; both are rounded to two decimals, as in prompts. If several combinations
-- have a session, the view takes the one that equals the score. exemplar_step is the step of this
-- run that wrote the kernel, NULL if the kernel is older than the run. holds is true if the score
-- equals the measured one and the kernel comes from an earlier step. holds is NULL if the prompt's
-- snapshot belongs to another lake, or if this lake is a copy without its history.
--
-- key columns: run, step, task_id, kernel_id, score, speedup, device, baseline, holds
-- place: place of the kernel in the prompt, from 1
-- exemplar_step: step of this run that wrote the kernel; NULL if the kernel is older than the run
-- score: speedup that the prompt showed (a ratio)
-- snapshot_id: snapshot that the prompt was rendered from
-- measured_snapshot_id: snapshot that committed the session
-- shown_at: when the prompt's attempts were made
-- holds: whether the score equals the measured one and the kernel is of an earlier step; NULL if
--   that cannot be known
-- attempts: number of attempts that saw the prompt
WITH prompts AS (
    SELECT
        run_steps.run_id, run_steps.step, run_steps.group_id, generations.prompt_id,
        generations.task_id, generations.lake_id, generations.snapshot_id,
        generations.exemplar_kernel_ids, generations.exemplar_scores,
        count(*) AS attempts,
        min(generations.created_at) AS created_at
    FROM generations
    INNER JOIN run_steps ON run_steps.generation_id = generations.generation_id
    WHERE len(generations.exemplar_kernel_ids) > 0
    GROUP BY
        run_steps.run_id, run_steps.step, run_steps.group_id, generations.prompt_id,
        generations.task_id, generations.lake_id, generations.snapshot_id,
        generations.exemplar_kernel_ids, generations.exemplar_scores
),
exemplars AS (
    SELECT
        * EXCLUDE (exemplar_kernel_ids, exemplar_scores),
        generate_subscripts(exemplar_kernel_ids, 1) AS place,
        unnest(exemplar_kernel_ids) AS kernel_id,
        unnest(exemplar_scores) AS score
    FROM prompts
),
-- DuckLake knows of every row the snapshot that brought it.
committed AS (
    SELECT session_id, max(snapshot_id) AS snapshot_id
    FROM lake.main.timings
    GROUP BY session_id
),
sessions AS (
    SELECT
        speeds.kernel_id, speeds.task_id, speeds.workload_id, speeds.device_id, speeds.baseline,
        speeds.clock, speeds.session_id, speeds.measured_at, committed.snapshot_id,
        evaluations.evaluator, evaluations.evaluator_version, speeds.speedup,
        1 / greatest(speeds.error ** 2 + speeds.spread ** 2, 1e-9) AS weight,
        NOT speeds.confirmed OR row_number() OVER (
            PARTITION BY
                speeds.evaluation_id, speeds.kernel_id, speeds.task_id, speeds.baseline,
                speeds.clock, speeds.confirmed
            ORDER BY speeds.speedup, speeds.session_id
        ) = 1 AS is_lower
    FROM session_speedups AS speeds
    INNER JOIN committed ON committed.session_id = speeds.session_id
    INNER JOIN evaluations ON evaluations.evaluation_id = speeds.evaluation_id
    SEMI JOIN exemplars
        ON exemplars.kernel_id = speeds.kernel_id AND exemplars.task_id = speeds.task_id
    WHERE NOT speeds.disturbed AND NOT speeds.unresolved
),
evidence AS (
    SELECT
        exemplars.run_id, exemplars.group_id, exemplars.prompt_id, exemplars.place,
        exemplars.snapshot_id AS prompt_snapshot_id, exemplars.score,
        sessions.* EXCLUDE (speedup),
        round(sessions.speedup, 2) AS speedup,
        round(exp(
            sum(sessions.weight * ln(sessions.speedup)) OVER pool / sum(sessions.weight) OVER pool
        ), 2) AS pooled
    FROM exemplars
    INNER JOIN sessions
        ON
            sessions.kernel_id = exemplars.kernel_id
            AND sessions.task_id = exemplars.task_id
            AND sessions.snapshot_id <= exemplars.snapshot_id
    WINDOW pool AS (
        PARTITION BY
            exemplars.run_id, exemplars.group_id, exemplars.prompt_id, exemplars.snapshot_id,
            exemplars.place, sessions.workload_id, sessions.device_id, sessions.baseline,
            sessions.clock, sessions.evaluator, sessions.evaluator_version
    )
),
newest AS (
    SELECT * REPLACE (CASE WHEN pooled = score THEN pooled ELSE speedup END AS speedup)
    FROM evidence
    WHERE is_lower
    QUALIFY row_number() OVER (
        PARTITION BY
            run_id, group_id, prompt_id, prompt_snapshot_id, place, workload_id, device_id,
            baseline, clock
        ORDER BY {'measured_at': measured_at, 'session_id': session_id} DESC
    ) = 1
),
measured AS (
    SELECT *
    FROM newest
    QUALIFY row_number() OVER (
        PARTITION BY run_id, group_id, prompt_id, prompt_snapshot_id, place
        ORDER BY
            speedup = score DESC, clock = 'gpu' DESC, baseline = 'eager' DESC,
            measured_at DESC, session_id, baseline
    ) = 1
)
SELECT
    exemplars.run_id,
    runs."name" AS run,
    exemplars.step,
    exemplars.group_id,
    exemplars.prompt_id,
    exemplars.task_id,
    exemplars.attempts,
    exemplars.snapshot_id,
    exemplars.place,
    exemplars.kernel_id,
    origin.step AS exemplar_step,
    exemplars.score,
    measured.speedup,
    devices."name" AS device,
    measured.baseline,
    measured.session_id,
    measured.snapshot_id AS measured_snapshot_id,
    measured.measured_at,
    exemplars.created_at AS shown_at,
    CASE
        WHEN
            exemplars.lake_id = (SELECT lake_id FROM lakes ORDER BY created_at LIMIT 1)
            AND exemplars.snapshot_id >= (SELECT min(snapshot_id) FROM committed)
            THEN
                coalesce(measured.speedup = exemplars.score, false)
                AND coalesce(origin.step < exemplars.step, true)
    END AS holds
FROM exemplars
INNER JOIN runs ON runs.run_id = exemplars.run_id
LEFT JOIN measured
    ON
        measured.run_id = exemplars.run_id
        AND measured.group_id = exemplars.group_id
        AND measured.prompt_id IS NOT DISTINCT FROM exemplars.prompt_id
        AND measured.prompt_snapshot_id = exemplars.snapshot_id
        AND measured.place = exemplars.place
LEFT JOIN devices ON devices.device_id = measured.device_id
LEFT JOIN authors
    ON authors.kernel_id = exemplars.kernel_id AND authors.task_id = exemplars.task_id
LEFT JOIN run_steps AS origin
    ON origin.generation_id = authors.generation_id AND origin.run_id = exemplars.run_id
ORDER BY
    runs.started_at, exemplars.run_id, exemplars.step, exemplars.group_id, exemplars.prompt_id,
    exemplars.place
