-- Timing sessions of a kernel on a device model and by a clock; NULL stands for all of them.
-- Whether a session without its own column `disturbed` is disturbed depends on its other clocks,
-- and the speedup at another shape on all of them.
SELECT timings.*
FROM timings
INNER JOIN clocked_timings ON clocked_timings.timing_id = timings.timing_id
INNER JOIN devices ON devices.device_id = timings.device_id
INNER JOIN evaluations
    ON
        evaluations.evaluation_id = timings.evaluation_id
        AND evaluations.kernel_id = timings.kernel_id
        AND evaluations.task_id = timings.task_id
WHERE
    timings.kernel_id = $kernel
    AND clocked_timings.kernel_id = $kernel
    AND ($device IS NULL OR devices."name" = $device)
    AND (
        $clock IS NULL
        OR clocked_timings.clock = $clock
        OR timings.disturbed IS NULL
        OR evaluations.protocol IS NOT DISTINCT FROM 'shape'
    )
ORDER BY timings.timing_id
