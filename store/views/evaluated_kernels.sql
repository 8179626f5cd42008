-- One row per kernel, task, workload, device and precision that was judged, by a counted evaluation or not.
-- correct: a counted evaluation (counted_evaluations) found the kernel correct there. own: this
-- lake has judged it there itself. precision is NULL in a further row of every kernel, which
-- also stands for evaluations that do not count. Evaluations by the protocols training and
-- shape and faults of the judge are left out.
--
-- correct: whether an evaluation that counts found the kernel correct there
SELECT
    kernel_id, task_id, workload_id, device_id, "precision",
    bool_or(correct) AS correct, bool_or(own) AS own
FROM (
    SELECT
        kernel_id, task_id, workload_id, device_id, NULL AS "precision", false AS correct,
        origin IS NULL AS own
    FROM standing_evaluations
    WHERE status <> 'evaluator_error' AND coalesce(protocol, 'full') = 'full'
    UNION ALL
    SELECT
        kernel_id, task_id, workload_id, device_id, "precision", status = 'correct' AS correct,
        origin IS NULL AS own
    FROM counted_evaluations
    WHERE status <> 'evaluator_error'
)
GROUP BY kernel_id, task_id, workload_id, device_id, "precision"
