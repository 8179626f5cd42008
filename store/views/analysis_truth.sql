-- One row per analysis that names the fastest exemplar, device and baseline: is its choice right?
-- shown_right compares the analysis with the scores in its prompt. named_right compares it with
-- measured speedups, at the workload that scores the task, and needs a rankable speedup for every
-- exemplar in the prompt. device, baseline and named_right are NULL where nothing was measured. If
-- several exemplars tie, naming any of them is right.
--
-- key columns: task_id, author, device, baseline, named_kernel_id, named_speedup,
--   fastest_speedup, named_right
-- kind: kind of author: model, profiler or person
-- author: policy, profiler version or person that made the analysis
-- analysis_id: analysis (table analyses)
-- generation_id: attempt that contains the analysis
-- exemplars: number of different kernels in the prompt
-- named_kernel_id: exemplar that the analysis names as the fastest
-- fastest_shown_kernel_id: exemplar with the highest score in the prompt
-- shown_right: whether the named exemplar has the highest score shown
-- measured: number of exemplars with a measured speedup on the device
-- fastest_kernel_id: exemplar with the highest measured speedup
-- fastest_speedup: its speedup (a ratio)
-- named_speedup: measured speedup of the named exemplar (a ratio)
-- named_right: whether the named exemplar has the highest measured speedup
WITH exemplars AS (
    SELECT
        analyses.analysis_id, analyses.fastest_kernel_id AS named_kernel_id, generations.task_id,
        unnest(generations.exemplar_kernel_ids) AS kernel_id,
        unnest(generations.exemplar_scores) AS score
    FROM analyses
    INNER JOIN generations ON generations.generation_id = analyses.generation_id
    WHERE analyses.fastest_kernel_id IS NOT NULL
),
shown AS (
    SELECT
        analysis_id, named_kernel_id, task_id,
        count(DISTINCT kernel_id) AS exemplars,
        min({'slowness': -score, 'kernel_id': kernel_id}).kernel_id AS fastest_shown_kernel_id,
        max(score) FILTER (WHERE kernel_id = named_kernel_id) = max(score) AS shown_right
    FROM exemplars
    GROUP BY analysis_id, named_kernel_id, task_id
),
measured AS (
    SELECT
        exemplars.analysis_id, speeds.device, speeds.baseline,
        count(DISTINCT exemplars.kernel_id) AS measured,
        min({'slowness': -speeds.speedup, 'kernel_id': exemplars.kernel_id}).kernel_id
            AS fastest_kernel_id,
        max(speeds.speedup) AS fastest_speedup,
        max(speeds.speedup) FILTER (WHERE exemplars.kernel_id = exemplars.named_kernel_id)
            AS named_speedup
    FROM exemplars
    INNER JOIN kernel_speedups AS speeds
        ON speeds.kernel_id = exemplars.kernel_id AND speeds.task_id = exemplars.task_id
    INNER JOIN scored_workloads
        ON
            scored_workloads.task_id = speeds.task_id
            AND scored_workloads.device = speeds.device
            AND scored_workloads.workload_id = speeds.workload_id
    GROUP BY exemplars.analysis_id, speeds.device, speeds.baseline
)
SELECT
    analyses.analysis_id,
    analyses.kind,
    analyses.author,
    analyses.generation_id,
    shown.task_id,
    shown.exemplars,
    shown.named_kernel_id,
    shown.fastest_shown_kernel_id,
    coalesce(shown.shown_right, false) AS shown_right,
    measured.device,
    measured.baseline,
    measured.measured,
    measured.fastest_kernel_id,
    measured.fastest_speedup,
    measured.named_speedup,
    CASE
        WHEN measured.measured = shown.exemplars
        THEN coalesce(measured.named_speedup = measured.fastest_speedup, false)
    END AS named_right
FROM shown
INNER JOIN analyses ON analyses.analysis_id = shown.analysis_id
LEFT JOIN measured ON measured.analysis_id = shown.analysis_id
ORDER BY analyses.created_at, analyses.analysis_id, measured.device, measured.baseline
