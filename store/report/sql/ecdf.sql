-- Distribution of speedups
-- Share of ranked kernels whose speedup over the baseline is at most a value, at the workload that
-- scores the task. A line that is at 40 % at 1× says that 40 % of the kernels
-- are no faster than the baseline.
-- Empty: No correct kernel has a quiet timing session yet: evaluators run.
WITH placed AS (
    SELECT
        task_names.suite || ' ' || task_names.suite_revision AS suite,
        speeds.device, speeds.baseline, speeds.speedup,
        row_number() OVER (
            PARTITION BY task_names.suite, task_names.suite_revision, speeds.device, speeds.baseline
            ORDER BY speeds.speedup, speeds.kernel_id, speeds.task_id
        ) AS place,
        count(*) OVER (
            PARTITION BY task_names.suite, task_names.suite_revision, speeds.device, speeds.baseline
        ) AS n
    FROM counted_speedups AS speeds
    INNER JOIN task_names ON task_names.task_id = speeds.task_id
)
SELECT suite, device, baseline, speedup, place / n AS share, n
FROM placed
-- All points of a line of 250 kernels or fewer, at most 252 of a longer one.
WHERE place IN (1, n) OR place * 250 // n > (place - 1) * 250 // n
ORDER BY suite, device, baseline <> 'eager', baseline, speedup, share
