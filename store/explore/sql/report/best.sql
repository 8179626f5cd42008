-- The fastest kernels
-- The best kernel of each task and device over eager, by the lower bound of its 95 % interval, in
-- which its sessions pool.
-- fastest baseline is the one of the session with the lowest speedup. Quarantined kernels, kernels
-- that compute another function than the task, and trivial tasks are left out. fragile lists the
-- robustness checks that a kernel fails; such a kernel ranks. shapes: at how many other shapes that
-- were tried it is correct, and its worst speedup over eager there.
-- Empty: No correct kernel has a quiet timing session against eager yet: evaluators run.
WITH fastest AS (
    SELECT
        kernel_id, task_id, workload_id, device_id, session_id,
        arg_min(baseline, {'speedup': speedup, 'baseline': baseline}) AS fastest_baseline,
        min(speedup) AS lowest_speedup
    FROM kernel_speedups
    GROUP BY kernel_id, task_id, workload_id, device_id, session_id
)
SELECT
    best.task, best.speedup, best.speedup_low, best.speedup_high, best.device, best.threads,
    best.kernel_ms, best.baseline_ms, fastest.fastest_baseline, fastest.lowest_speedup,
    best.sessions, best.n AS samples, best.kernel_id,
    best.shapes, nullif(array_to_string(best.fragile, ', '), '') AS fragile,
    array_to_string(best.techniques, ', ') AS techniques,
    best.policy, left(best.title, 60) AS title, best.suite || ' ' || best.suite_revision AS suite,
    best.workload,
    best.clock, best."precision",
    count(*) OVER () AS total
FROM best_kernels AS best
LEFT JOIN fastest
    ON
        fastest.session_id = best.session_id
        AND fastest.kernel_id = best.kernel_id
        AND fastest.task_id = best.task_id
        AND fastest.workload_id = best.workload_id
WHERE best.baseline = 'eager'
ORDER BY best.speedup_low DESC, best.task_id, best.workload_id, best.device, best.kernel_id
LIMIT 40
