-- Best kernel of each task
-- The kernel with the highest lower end of the interval. Quarantined kernels, kernels that
-- compute another function, and trivial tasks are left out. fragile lists the robustness checks
-- that a kernel fails; such a kernel ranks. shapes: at how many other shapes that were tried it
-- is correct, and its worst speedup over eager there.
SELECT
    task, speedup, speedup_low, speedup_high, device, threads, baseline, clock, kernel_ms,
    baseline_ms, title, policy,
    shapes, nullif(array_to_string(fragile, ', '), '') AS fragile,
    array_to_string(techniques, ', ') AS techniques,
    kernel_id, workload, measured_at, task_id
FROM best_kernels
WHERE true
    AND suite || ' ' || suite_revision = $suite
    AND coalesce("level"::VARCHAR, '') = $task_level
    AND device = $device
    AND baseline = $baseline
    AND clock = $clock
    AND "precision" = $precision
    AND policy = $author
ORDER BY speedup_low DESC, task, device, baseline, workload, kernel_id
