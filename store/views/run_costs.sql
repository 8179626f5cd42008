-- One row per training or rollout run, device and baseline: the cost of its improvements.
-- An improvement is a record of the lake (history) set by a kernel that this run wrote first. If
-- the lake had measured nothing before, it counts only with a lower bound above 1. device_s adds up
-- the wall time of the first evaluation of each kernel that the run wrote first, on that device,
-- without waiting for other judges: the cost of judging it, without evaluations that others added
-- later. device is NULL if nothing was judged.
--
-- key columns: run, kind, device, baseline, attempts, improvements, cost_usd_per_improvement
-- judged: number of kernels judged on the device
-- improvements: number of records of the lake that the run set
-- improved_tasks: number of tasks with such a record
-- device_s: seconds of judging the run's kernels once each, without waiting for other judges
-- tokens_per_improvement: prompt and completion tokens / improvements; NULL without one
-- cost_usd_per_improvement: US dollars / improvements; NULL without one
-- device_s_per_improvement: seconds of judging / improvements; NULL without one
WITH firsts AS (
    SELECT run_steps.run_id, authors.kernel_id, authors.task_id, run_steps.step
    FROM authors
    INNER JOIN run_steps ON run_steps.generation_id = authors.generation_id
),
written AS (
    SELECT
        run_id,
        count(*) AS attempts,
        count(DISTINCT kernel_id) AS kernels,
        sum(prompt_tokens)::BIGINT AS prompt_tokens,
        sum(completion_tokens)::BIGINT AS completion_tokens,
        sum(cost_usd) AS cost_usd
    FROM generations
    GROUP BY run_id
),
first_evaluations AS (
    SELECT
        firsts.run_id, devices."name" AS device, evaluations.kernel_id, evaluations.task_id,
        min({
            'created_at': evaluations.created_at, 'evaluation_id': evaluations.evaluation_id,
            'wall_s':
                evaluations.wall_s
                - coalesce(
                    try_cast(try_cast(evaluations.parts_s AS JSON) ->> 'waiting' AS DOUBLE), 0
                )
        }).wall_s AS wall_s
    FROM evaluations
    INNER JOIN firsts
        ON
            firsts.kernel_id = evaluations.kernel_id
            AND firsts.task_id = evaluations.task_id
    INNER JOIN devices ON devices.device_id = evaluations.device_id
    GROUP BY firsts.run_id, devices."name", evaluations.kernel_id, evaluations.task_id
),
judged AS (
    SELECT run_id, device, count(*) AS judged, sum(wall_s) AS device_s
    FROM first_evaluations
    GROUP BY run_id, device
),
baselines AS (
    SELECT DISTINCT firsts.run_id, devices."name" AS device, timings.arm AS baseline
    FROM timings
    INNER JOIN firsts
        ON firsts.kernel_id = timings.kernel_id AND firsts.task_id = timings.task_id
    INNER JOIN devices ON devices.device_id = timings.device_id
    WHERE timings.arm <> 'kernel'
),
improved AS (
    SELECT
        firsts.run_id, "history".device, "history".baseline,
        count(*) AS improvements,
        count(DISTINCT "history".task_id) AS improved_tasks
    FROM "history"
    INNER JOIN firsts
        ON firsts.kernel_id = "history".kernel_id AND firsts.task_id = "history".task_id
    WHERE "history".previous_low IS NOT NULL OR "history".speedup_low > 1
    GROUP BY firsts.run_id, "history".device, "history".baseline
)
SELECT
    written.run_id,
    runs."name" AS run,
    runs.kind,
    judged.device,
    baselines.baseline,
    written.attempts,
    written.kernels,
    judged.judged,
    coalesce(improved.improvements, 0) AS improvements,
    coalesce(improved.improved_tasks, 0) AS improved_tasks,
    written.prompt_tokens,
    written.completion_tokens,
    written.cost_usd,
    judged.device_s,
    (written.prompt_tokens + written.completion_tokens) / improved.improvements
        AS tokens_per_improvement,
    written.cost_usd / improved.improvements AS cost_usd_per_improvement,
    judged.device_s / improved.improvements AS device_s_per_improvement
FROM written
INNER JOIN runs
    ON runs.run_id = written.run_id AND runs.kind IN ('training', 'rollout')
LEFT JOIN judged ON judged.run_id = written.run_id
LEFT JOIN baselines ON baselines.run_id = written.run_id AND baselines.device = judged.device
LEFT JOIN improved
    ON
        improved.run_id = written.run_id
        AND improved.device = judged.device
        AND improved.baseline = baselines.baseline
ORDER BY runs.started_at, written.run_id, judged.device, baselines.baseline
