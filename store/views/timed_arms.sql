-- One row per kernel, task, workload, device, arm, clock and precision that was timed.
-- disturbed: every session of the arm is disturbed, contended or unverified, as in speedups, or
-- too short a baseline for its clock. Sessions at other shapes (shape_verdicts) are left out.
-- own: this lake has timed it itself. precision is NULL for arms of evaluations that do not
-- count (counted_evaluations). Views that ask what was timed, and not how fast it was, read
-- this view instead of the samples.
--
-- disturbed: whether every session of the arm is disturbed, or too short for its clock
SELECT
    timings.kernel_id,
    timings.task_id,
    timings.workload_id,
    timings.device_id,
    timings.arm,
    timings.clock,
    evaluations."precision",
    bool_and(
        timings.disturbed
        OR (timings.unresolved AND timings.arm <> 'kernel')
        OR coalesce(evaluations.contended OR evaluations.unverified, false)
    ) AS disturbed,
    bool_or(timings.origin IS NULL) AS own
FROM clocked_timings AS timings
LEFT JOIN counted_evaluations AS evaluations
    ON
        evaluations.evaluation_id = timings.evaluation_id
        AND evaluations.kernel_id = timings.kernel_id
        AND evaluations.task_id = timings.task_id
ANTI JOIN (
    SELECT evaluation_id, kernel_id, task_id
    FROM evaluations
    WHERE protocol = 'shape'
) AS at_shapes
    ON
        at_shapes.evaluation_id = timings.evaluation_id
        AND at_shapes.kernel_id = timings.kernel_id
        AND at_shapes.task_id = timings.task_id
GROUP BY ALL
