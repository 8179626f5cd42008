-- One row per published speedup of a candidate on a task, with the names of the task.
-- Start an audit of a release here. released says whether the source published the code behind the
-- figure. Each figure counts once, even if several revisions state it (current_claims).
--
-- key columns: task, gpu, baseline, speedup, policy, source
-- speedup: published speedup over the baseline (a ratio)
-- claim_id: claim (table claims)
-- baseline_kernel_id: released code of the baseline; NULL if none was released
SELECT
    claims.claim_id,
    claims.task_id,
    task_names.suite,
    task_names.suite_revision,
    task_names."level",
    task_names.problem_id,
    task_names.task,
    task_names.title,
    task_names.degenerate,
    claims.gpu,
    claims.baseline,
    claims.speedup,
    claims.kernel_id IS NOT NULL AS released,
    claims.kernel_id,
    claims.baseline_kernel_id,
    claims.policy_id,
    policies."name" AS policy,
    claims."source",
    claims.source_revision,
    claims.published_on,
    claims.license
FROM current_claims AS claims
LEFT JOIN task_names ON task_names.task_id = claims.task_id
LEFT JOIN policies ON policies.policy_id = claims.policy_id
WHERE claims.metric = 'speedup' AND claims.speedup IS NOT NULL AND claims.task_id IS NOT NULL
