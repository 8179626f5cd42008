-- One row of leaderboard per policy that belongs to a training stage, in the order of training.
-- Base model, stage 1 (SFT), stages 1 + 2 (self-supervised) and 1 + 2 + 3 (contrastive) of CUDA-L1
-- stand side by side on the same tasks.
WITH stages AS (
    SELECT
        policy_id,
        stage,
        "round",
        CASE stage
            WHEN 'base' THEN 'base'
            WHEN 'sft' THEN 'stage 1'
            WHEN 'self-supervised' THEN 'stages 1 + 2'
            WHEN 'contrastive' THEN 'stages 1 + 2 + 3'
        END AS stages
    FROM policies
    WHERE stage IS NOT NULL
)
SELECT
    leaderboard.suite,
    leaderboard.suite_revision,
    leaderboard."level",
    leaderboard.device,
    leaderboard.baseline,
    stages.stages,
    stages.stage,
    stages."round",
    leaderboard.* EXCLUDE (suite, suite_revision, "level", device, baseline)
FROM leaderboard
INNER JOIN stages ON stages.policy_id = leaderboard.policy_id
ORDER BY
    leaderboard.suite, leaderboard.suite_revision, leaderboard."level" NULLS FIRST,
    leaderboard.device, leaderboard.baseline,
    list_position(['base', 'sft', 'self-supervised', 'contrastive'], stages.stage),
    stages."round" NULLS FIRST, leaderboard.policy, leaderboard.policy_id
