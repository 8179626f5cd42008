-- Claims without a measurement
-- Published speedups whose kernel nobody has judged here, or whose code was not released.
SELECT
    gpu, speedup AS claimed, baseline, kernel_id, "source", source_revision
FROM current_claims
WHERE task_id = $task AND metric = 'speedup'
    AND (
        kernel_id IS NULL
        OR kernel_id NOT IN (SELECT kernel_id FROM outcomes WHERE task_id = $task)
    )
ORDER BY claimed DESC, "source", gpu, baseline, kernel_id
