-- One row per kernel and task that the kernel passes while computing a different function.
-- This view is the only rule for equivalence: rankings, prompts and rewards leave these kernels
-- out. The judge's column `equivalent` decides. Where it is NULL, because the judge did not say, the
-- flags listed below decide. One evaluation is enough, at any workload and on any device, unless a
-- newer version of its evaluator has judged the kernel there. A pulled one is enough only for a
-- kernel that this lake has not judged (counted_evaluations.elsewhere).
-- `--include-nonequivalent` makes this view empty.
--
-- flags: flags of the evaluation that say why
-- since: when this was first seen
WITH another AS (
    SELECT
        kernel_id, task_id, workload_id, device_id, evaluator, evaluator_version, flags, created_at
    FROM counted_evaluations
    WHERE
        status = 'correct'
        AND NOT elsewhere
        AND NOT coalesce(
            equivalent,
            NOT list_has_any(flags, [
                'another_function', 'fails_perturbed_parameters', 'parameters_renamed',
                'state_differs',
                -- A verdict without `equivalent` raises these for rounding and for another
                -- function alike.
                'fails_positive', 'fails_random_signs', 'fails_signed'
            ]),
            true
        )
)
SELECT
    another.kernel_id,
    another.task_id,
    list_sort(list_distinct(flatten(list(coalesce(another.flags, []))))) AS flags,
    min(another.created_at) AS since
FROM another
ANTI JOIN counted_evaluations AS newer
    ON
        newer.kernel_id = another.kernel_id
        AND newer.task_id = another.task_id
        AND newer.workload_id = another.workload_id
        AND newer.device_id = another.device_id
        AND newer.evaluator = another.evaluator
        AND newer.evaluator_version > another.evaluator_version
        AND newer.status <> 'evaluator_error'
GROUP BY another.kernel_id, another.task_id
