-- Training stages
-- The stages of CUDA-L1 on the same tasks: the base model, then fine-tuning, self-supervision and
-- contrastive reinforcement learning, each on top of the one before.
-- Empty: Fewer than two stages of training have been judged on one device: trainers run, then
-- Empty: evaluators run.
SELECT
    suite || ' ' || suite_revision AS suite, device, stages,
    p50, p50_low, p50_high, baseline, clock, n, common, "round", policy, tasks, success, faster, geomean, mean,
    max,
    geomean_missing_as_1, mean_missing_as_1, weak, pending
FROM stage_table
WHERE "level" IS NULL
QUALIFY count(DISTINCT policy_id) OVER (PARTITION BY suite, suite_revision, device) > 1
ORDER BY
    suite, device, baseline,
    list_position(['base', 'sft', 'self-supervised', 'contrastive'], stage),
    "round" NULLS FIRST, policy, policy_id
LIMIT 200
