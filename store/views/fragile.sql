-- One row per kernel and task with the robustness checks that the correct kernel fails.
-- flags has the flags of the judge that start with fails_, such as fails_scaled. The kernel gives
-- wrong answers on such inputs, but not on those of the task: it is correct and ranks, and tables
-- of kernels show the flags. One evaluation is enough, at any workload and on any device, unless a
-- newer version of its evaluator has judged the kernel there. A pulled one is enough only for a
-- kernel that this lake has not judged (counted_evaluations.elsewhere).
--
-- flags: failed robustness checks, flags that begin with fails_
WITH flagged AS (
    SELECT
        kernel_id, task_id, workload_id, device_id, evaluator, evaluator_version,
        list_filter(flags, lambda flag: starts_with(flag, 'fails_')) AS failed
    FROM counted_evaluations
    WHERE status = 'correct' AND len(failed) > 0 AND NOT elsewhere
)
SELECT
    flagged.kernel_id,
    flagged.task_id,
    list_sort(list_distinct(flatten(list(flagged.failed)))) AS flags
FROM flagged
ANTI JOIN counted_evaluations AS newer
    ON
        newer.kernel_id = flagged.kernel_id
        AND newer.task_id = flagged.task_id
        AND newer.workload_id = flagged.workload_id
        AND newer.device_id = flagged.device_id
        AND newer.evaluator = flagged.evaluator
        AND newer.evaluator_version > flagged.evaluator_version
        AND newer.status <> 'evaluator_error'
GROUP BY flagged.kernel_id, flagged.task_id
