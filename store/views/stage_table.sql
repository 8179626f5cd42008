-- One row per row of leaderboard whose policy has a training stage, in the order of training.
-- `stages` names the methods along the policy's chain of parents: base, the methods in their order
-- ("sft + self-supervised + contrastive", or "contrastive" alone for a policy trained from the base
-- model), or "imported: METHOD" for a policy that a release describes. A parent without a stated
-- stage is "unknown". Consecutive rounds of one method count as one. common is the number of tasks that
-- have a speedup of each policy with a stage, of the rows with the same suite, level, device and
-- baseline: rows whose n is above it compare different tasks.
--
-- key columns: stages, policy, suite, level, device, baseline, p50, p50_low, p50_high, n, common
-- stages: training methods along the chain of parents, in words
-- stage: training stage of the policy
-- round: round or step within the stage
-- common: number of tasks with a speedup of each policy with a stage
-- n: number of tasks with a speedup
-- sessions: number of timing sessions behind all of them
WITH RECURSIVE ancestors AS (
    SELECT policy_id, policy_id AS ancestor_id, [policy_id] AS seen
    FROM policies
    WHERE stage IS NOT NULL
    UNION ALL
    SELECT
        ancestors.policy_id,
        policies.parent_policy_id AS ancestor_id,
        list_prepend(policies.parent_policy_id, ancestors.seen) AS seen
    FROM ancestors
    INNER JOIN policies ON policies.policy_id = ancestors.ancestor_id
    WHERE NOT list_contains(ancestors.seen, policies.parent_policy_id)
),
-- place 1 is the policy itself, 2 its parent.
steps AS (
    SELECT
        ancestors.policy_id,
        len(ancestors.seen) AS place,
        CASE
            WHEN policies.stage IS NULL THEN 'unknown'
            WHEN policies.kind = 'released' THEN 'imported: ' || policies.stage
            ELSE policies.stage
        END AS step
    FROM ancestors
    INNER JOIN policies ON policies.policy_id = ancestors.ancestor_id
),
methods AS (
    SELECT policy_id, place, step
    FROM steps
    -- A base model is named where nothing was done to it.
    WHERE step <> 'base' OR place = 1
    QUALIFY step IS DISTINCT FROM lag(step) OVER (PARTITION BY policy_id ORDER BY place)
),
stages AS (
    SELECT policy_id, string_agg(step, ' + ' ORDER BY place DESC) AS stages
    FROM methods
    GROUP BY policy_id
),
results AS (
    SELECT task_results.*
    FROM task_results
    SEMI JOIN stages ON stages.policy_id = task_results.policy_id
    WHERE task_results.baseline IS NOT NULL
),
compared AS (
    SELECT suite, suite_revision, "level", device, baseline, count(DISTINCT policy_id) AS policies
    FROM results
    GROUP BY suite, suite_revision, "level", device, baseline
),
measured AS (
    SELECT
        suite, suite_revision, "level", device, baseline, task_id,
        count(DISTINCT policy_id) AS policies
    FROM results
    WHERE speedup IS NOT NULL AND NOT left_out
    GROUP BY suite, suite_revision, "level", device, baseline, task_id
),
shared AS (
    SELECT
        compared.suite, compared.suite_revision, compared."level", compared.device,
        compared.baseline, count(measured.task_id) AS common
    FROM compared
    LEFT JOIN measured
        ON
            measured.suite = compared.suite
            AND measured.suite_revision = compared.suite_revision
            AND measured."level" IS NOT DISTINCT FROM compared."level"
            AND measured.device = compared.device
            AND measured.baseline = compared.baseline
            AND measured.policies = compared.policies
    GROUP BY
        compared.suite, compared.suite_revision, compared."level", compared.device,
        compared.baseline
)
SELECT
    leaderboard.suite,
    leaderboard.suite_revision,
    leaderboard."level",
    leaderboard.device,
    leaderboard.baseline,
    stages.stages,
    policies.stage,
    policies."round",
    coalesce(shared.common, 0) AS common,
    leaderboard.* EXCLUDE (suite, suite_revision, "level", device, baseline)
FROM leaderboard
INNER JOIN policies ON policies.policy_id = leaderboard.policy_id
INNER JOIN stages ON stages.policy_id = leaderboard.policy_id
LEFT JOIN shared
    ON
        shared.suite = leaderboard.suite
        AND shared.suite_revision = leaderboard.suite_revision
        AND shared."level" IS NOT DISTINCT FROM leaderboard."level"
        AND shared.device = leaderboard.device
        AND shared.baseline = leaderboard.baseline
ORDER BY
    leaderboard.suite, leaderboard.suite_revision, leaderboard."level" NULLS FIRST,
    leaderboard.device, leaderboard.baseline,
    list_position(['base', 'sft', 'self-supervised', 'contrastive'], policies.stage),
    stages.stages, policies."round" NULLS FIRST, leaderboard.policy, leaderboard.policy_id
