-- One row per kernel shown in a prompt of a run: the score shown and the speedup measured by then.
-- "By then" means committed at or before the snapshot that the prompt was rendered from. session_id
-- is the newest such session that may rank, or the lower one of two that confirm a win, of a
-- workload, device, baseline and clock; speedup is computed
-- from its samples (as in speedups, rounded to two decimals as in prompts). If several combinations
-- have a session, the view takes the one that equals the score. exemplar_step is the step of this
-- run that wrote the kernel, NULL if the kernel is older than the run. holds is true if the score
-- equals the measured one and the kernel comes from an earlier step. holds is NULL if the prompt's
-- snapshot belongs to another lake, or if this lake is a copy without its history.
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
ratios AS (
    SELECT
        paired.kernel_id, paired.task_id, paired.workload_id, paired.device_id, paired.baseline,
        paired.clock, paired.evaluation_id, paired.confirmed, paired.session_id,
        paired.measured_at, committed.snapshot_id,
        list_sort(list_transform(
            paired.baseline_samples, lambda ms, i: CAST(ms AS DOUBLE) / paired.kernel_samples[i]
        )) AS ratios
    FROM paired_samples AS paired
    INNER JOIN committed ON committed.session_id = paired.session_id
    SEMI JOIN exemplars
        ON exemplars.kernel_id = paired.kernel_id AND exemplars.task_id = paired.task_id
    WHERE NOT paired.disturbed AND NOT paired.unresolved
),
evidence AS (
    SELECT
        * EXCLUDE (ratios),
        round(sqrt(ratios[(len(ratios) + 1) // 2] * ratios[len(ratios) // 2 + 1]), 2) AS speedup
    FROM ratios
    QUALIFY NOT confirmed OR row_number() OVER (
        PARTITION BY evaluation_id, kernel_id, task_id, device_id, baseline, clock, confirmed
        ORDER BY sqrt(ratios[(len(ratios) + 1) // 2] * ratios[len(ratios) // 2 + 1]), session_id
    ) = 1
),
newest AS (
    SELECT
        exemplars.run_id, exemplars.group_id, exemplars.prompt_id, exemplars.place,
        exemplars.snapshot_id AS prompt_snapshot_id, exemplars.score, evidence.*
    FROM exemplars
    INNER JOIN evidence
        ON
            evidence.kernel_id = exemplars.kernel_id
            AND evidence.task_id = exemplars.task_id
            AND evidence.snapshot_id <= exemplars.snapshot_id
    QUALIFY row_number() OVER (
        PARTITION BY
            exemplars.run_id, exemplars.group_id, exemplars.prompt_id, exemplars.snapshot_id,
            exemplars.place, evidence.workload_id, evidence.device_id, evidence.baseline,
            evidence.clock
        ORDER BY {'measured_at': evidence.measured_at, 'session_id': evidence.session_id} DESC
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
