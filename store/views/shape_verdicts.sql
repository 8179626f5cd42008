-- One row per kernel, task, device and workload: what the kernel does at another shape of the task.
-- An evaluation by the protocol shape judges a kernel, which is correct at its own workload, at
-- other sizes that the task's reference accepts. outcome: held; raises, where the kernel raises
-- an exception, as one does that asserts its shape; wrong, where it gives a wrong answer,
-- leaves its memory, hangs or cheats. Of several evaluations by the newest version of the
-- evaluator the worst outcome counts. speedup is over eager, the median of the newest session
-- that is not disturbed or contended; NULL where there is none. Pulled rows count only for a
-- kernel, task and device without rows of this lake's own. These rows rank nothing: every other
-- view of evaluations leaves them out.
--
-- key columns: kernel_id, device, shape, outcome, reason, speedup
-- workload_id: other input sizes that the kernel was tried at
-- shape: name of these sizes
-- outcome: held, raises or wrong
-- reason: kind of failure; NULL if the kernel held
-- speedup: speedup over eager there (a ratio); NULL where it was not timed
WITH judged AS (
    SELECT
        evaluations.evaluation_id, evaluations.kernel_id, evaluations.task_id,
        evaluations.workload_id, devices."name" AS device, evaluations.evaluator_version,
        evaluations.created_at, evaluations.reason,
        coalesce(list_contains(evaluations.flags, 'contended'), false) AS contended,
        CASE
            WHEN evaluations.status = 'correct' THEN 1
            WHEN
                (evaluations.status = 'compile_error' OR evaluations.reason = 'exception')
                AND NOT contains(coalesce(evaluations.message, ''), 'CUDA error')
                THEN 2
            ELSE 3
        END AS place
    FROM standing_evaluations AS evaluations
    INNER JOIN devices ON devices.device_id = evaluations.device_id
    WHERE evaluations.protocol = 'shape' AND evaluations.status <> 'evaluator_error'
    WINDOW same_place AS (
        PARTITION BY evaluations.kernel_id, evaluations.task_id, devices."name"
    )
    QUALIFY
        evaluations.evaluator_version = max(evaluations.evaluator_version) OVER same_place
        AND (evaluations.origin IS NULL OR NOT bool_or(evaluations.origin IS NULL) OVER same_place)
),
-- Few of all timings: judges that try other shapes write every column of them.
arms AS (
    SELECT
        timings.evaluation_id, timings.kernel_id, timings.task_id, timings.session_id,
        timings.clock, timings.arm, timings.samples_ms, timings.blocks, timings.created_at
    FROM timings
    SEMI JOIN judged
        ON
            judged.evaluation_id = timings.evaluation_id
            AND judged.kernel_id = timings.kernel_id
            AND judged.task_id = timings.task_id
    WHERE
        timings.arm IN ('kernel', 'eager')
        AND NOT coalesce(timings.disturbed, true)
        AND NOT (timings.arm = 'eager' AND coalesce(timings.unresolved, true))
),
timed AS (
    SELECT
        kernel.evaluation_id, kernel.kernel_id, kernel.task_id,
        max({
            'at': kernel.created_at,
            'speedup': exp(list_median(list_transform(
                kernel.samples_ms,
                lambda ms, place: ln(CAST(eager.samples_ms[place] AS DOUBLE) / ms)
            )))
        }).speedup AS speedup
    FROM arms AS kernel
    INNER JOIN arms AS eager
        ON
            eager.evaluation_id = kernel.evaluation_id
            AND eager.kernel_id = kernel.kernel_id
            AND eager.task_id = kernel.task_id
            AND eager.session_id = kernel.session_id
            AND eager.clock = kernel.clock
    WHERE kernel.arm = 'kernel' AND eager.arm = 'eager' AND eager.blocks = kernel.blocks
    GROUP BY kernel.evaluation_id, kernel.kernel_id, kernel.task_id
)
SELECT
    judged.kernel_id,
    judged.task_id,
    judged.device,
    judged.workload_id,
    any_value(workloads."name") AS shape,
    ['held', 'raises', 'wrong'][max(judged.place)] AS outcome,
    max({'place': judged.place, 'at': judged.created_at, 'reason': judged.reason}).reason AS reason,
    max({'at': judged.created_at, 'speedup': timed.speedup}) FILTER (
        WHERE judged.place = 1 AND NOT judged.contended AND timed.speedup IS NOT NULL
    ).speedup AS speedup,
    max({
        'place': judged.place, 'at': judged.created_at, 'id': judged.evaluation_id
    }).id AS evaluation_id
FROM judged
INNER JOIN workloads ON workloads.workload_id = judged.workload_id
LEFT JOIN timed
    ON
        timed.evaluation_id = judged.evaluation_id
        AND timed.kernel_id = judged.kernel_id
        AND timed.task_id = judged.task_id
GROUP BY judged.kernel_id, judged.task_id, judged.device, judged.workload_id
