-- One row per arm of CUDA-L1's stage table (Table 5) and per policy of this lake with a stage.
-- The paper's rows are published figures on an A100. The lake's own rows come from stage_table,
-- over all levels, against eager; success and faster are out of tasks. An imported policy is listed
-- at the stage that its release states. If this lake has judged no policy of a stage, one row says
-- so. A policy that was trained in another order comes last, under the methods it was trained by.
-- Figures that the paper does not give are NULL, and so are the figures of a stage that was not
-- judged. place orders the arms: vanilla models, R1-evolve, CUDA-L1's stages, then the lake's own.
--
-- key columns: stages, policy, suite, device, n, p50, p50_low, p50_high, tasks
-- stated_by: who states the figures: the paper or this lake
-- place: order of the arms
-- stages: training methods that the arm went through, in words
-- success: number of tasks with a correct kernel, out of tasks
-- n: number of tasks with a speedup
WITH arms (place, policy_id, arm) AS (
    VALUES
    (1, 'llama-3.1-405b', 'vanilla'),
    (2, 'deepseek-r1', 'vanilla'),
    (3, 'deepseek-r1-evolve', 'evolve'),
    (4, 'cuda-l1/stage-1', 'stage 1'),
    (5, 'cuda-l1/stage-2', 'stages 1 + 2'),
    (6, 'cuda-l1/grpo', 'stages 1 + 2, then GRPO'),
    (7, 'cuda-l1/random', 'stages 1 + 2 + 3, random'),
    (8, 'cuda-l1/island', 'stages 1 + 2 + 3, island'),
    (9, 'cuda-l1', 'stages 1 + 2 + 3')
),
paper AS (
    SELECT
        'paper' AS stated_by,
        arms.place,
        arms.arm AS stages,
        any_value(policies."name") AS policy,
        any_value(figures.suite || ' ' || figures.suite_revision) AS suite,
        figures.gpu AS device,
        any_value(figures."of") AS tasks,
        any_value(figures.value) FILTER (WHERE figures.metric = 'success')::BIGINT AS success,
        any_value(figures.value)
            FILTER (WHERE figures.metric = 'faster_than_1.01')::BIGINT AS faster,
        any_value(figures.value) FILTER (WHERE figures.metric = 'mean_speedup') AS mean,
        any_value(figures.value) FILTER (WHERE figures.metric = 'max_speedup') AS max
    FROM current_claims AS figures
    INNER JOIN arms ON arms.policy_id = figures.policy_id
    LEFT JOIN policies ON policies.policy_id = figures.policy_id
    WHERE
        figures."source" = 'CUDA-L1 paper, Table 5'
        AND figures.task_id IS NULL
        AND figures.baseline = 'eager'
    GROUP BY arms.place, arms.arm, figures.gpu
),
stages (place, stages, trained_by) AS (
    VALUES
    (11, 'base', 'base'),
    (12, 'stage 1', 'sft'),
    (13, 'stages 1 + 2', 'sft + self-supervised'),
    (14, 'stages 1 + 2 + 3', 'sft + self-supervised + contrastive')
),
ours AS (
    SELECT
        *,
        CASE stages
            WHEN 'imported: base' THEN 'base'
            WHEN 'imported: sft' THEN 'sft'
            WHEN 'imported: self-supervised' THEN 'sft + self-supervised'
            WHEN 'imported: contrastive' THEN 'sft + self-supervised + contrastive'
            ELSE stages
        END AS trained_by
    FROM stage_table
    WHERE "level" IS NULL AND baseline = 'eager'
)
SELECT
    stated_by, place, stages, policy, suite, device, tasks, success, faster,
    CAST(NULL AS BIGINT) AS n,
    CAST(NULL AS DOUBLE) AS geomean,
    CAST(NULL AS DOUBLE) AS p50,
    CAST(NULL AS DOUBLE) AS p50_low,
    CAST(NULL AS DOUBLE) AS p50_high,
    mean, max,
    CAST(NULL AS DOUBLE) AS mean_missing_as_1
FROM paper
UNION ALL
SELECT
    'this lake',
    coalesce(stages.place, 15),
    coalesce(stages.stages, ours.stages),
    CASE
        WHEN ours.policy_id IS NULL THEN 'no kernel of this stage was judged here'
        WHEN ours."round" IS NOT NULL THEN ours.policy || ', round ' || ours."round"
        ELSE ours.policy
    END,
    ours.suite || ' ' || ours.suite_revision,
    ours.device, ours.tasks, ours.success, ours.faster, ours.n, ours.geomean,
    ours.p50, ours.p50_low, ours.p50_high, ours.mean, ours.max, ours.mean_missing_as_1
FROM stages
FULL JOIN ours ON ours.trained_by = stages.trained_by
ORDER BY place, suite, device, policy
