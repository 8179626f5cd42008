-- One row per raw reward of a run under one rule, at the steps from $first up to and without $last.
-- Sorted by value inside a step, so that sums do not depend on the order in which rows were stored.
SELECT step, "raw"
FROM rewards
WHERE
    run_id = $run_id
    AND rule = $rule
    AND rule_version = $rule_version
    AND step >= $first
    AND step < $last
ORDER BY step, "raw"
