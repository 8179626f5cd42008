-- Their code
-- The fastest kernels over all devices, one per task, with their changes to the reference. Long
-- texts are cut; store show KERNEL prints all of one.
-- Empty: No correct kernel has a quiet timing session against eager yet: evaluators run.
WITH fastest AS (
    SELECT *
    FROM best_kernels
    WHERE baseline = 'eager'
    QUALIFY row_number() OVER (
        PARTITION BY task_id ORDER BY speedup_low DESC, device, workload_id, kernel_id
    ) = 1
    ORDER BY speedup_low DESC, task_id
    LIMIT $kernels
)
SELECT
    fastest.suite || ' ' || fastest.suite_revision AS suite, fastest.task, fastest.title,
    fastest.device, fastest.speedup, fastest.speedup_low, fastest.speedup_high,
    fastest.sessions, fastest.n, fastest.policy,
    fastest.shapes, array_to_string(fastest.fragile, ', ') AS fragile,
    array_to_string(fastest.techniques, ', ') AS techniques,
    kernels.license, kernels."path", fastest.kernel_id, fastest.task_id,
    left(kernels.code, 400000) AS code,
    left(tasks.code, 400000) AS reference
FROM fastest
INNER JOIN kernels ON kernels.kernel_id = fastest.kernel_id
INNER JOIN tasks ON tasks.task_id = fastest.task_id
ORDER BY fastest.speedup_low DESC, fastest.task_id
