-- Distribution of speedups
-- Share of ranked kernels whose speedup is at most a value. A line that is at 40 % at 1× says that
-- 40 % of the kernels are no faster than the baseline. Trivial tasks are left out.
-- Empty: No correct kernel has a quiet timing session yet: evaluators run.
WITH placed AS (
    SELECT
        task_names.suite || ' ' || task_names.suite_revision AS suite,
        speeds.device, speeds.baseline, speeds.speedup,
        row_number() OVER one AS place,
        count(*) OVER (
            PARTITION BY
                task_names.suite, task_names.suite_revision, speeds.device, speeds.baseline
        ) AS n
    FROM counted_speedups AS speeds
    INNER JOIN task_names ON task_names.task_id = speeds.task_id
    LEFT JOIN authors ON authors.kernel_id = speeds.kernel_id AND authors.task_id = speeds.task_id
    WHERE true
        AND task_names.suite || ' ' || task_names.suite_revision = $suite
        AND coalesce(task_names."level"::VARCHAR, '') = $task_level
        AND speeds.device = $device
        AND speeds.baseline = $baseline
        AND speeds.clock = $clock
        AND speeds."precision" = $precision
        AND authors.policy = $author
    WINDOW one AS (
        PARTITION BY task_names.suite, task_names.suite_revision, speeds.device, speeds.baseline
        ORDER BY speeds.speedup, speeds.kernel_id, speeds.task_id
    )
)
SELECT suite, device, baseline, speedup, place / n AS share, n
FROM placed
-- At most about 120 points of a line.
WHERE place IN (1, n) OR place * 120 // n > (place - 1) * 120 // n
ORDER BY suite, device, baseline <> 'eager', baseline, speedup, share
