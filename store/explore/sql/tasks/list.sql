-- Tasks
-- Each task with its attempts and the best speedup over eager on any device.
-- Empty: No task matches. `store import starter` adds tasks.
WITH attempts AS (
    SELECT task_id, count(*) AS attempts, approx_count_distinct(kernel_id) AS kernels
    FROM generations
    GROUP BY task_id
),
best AS (
    SELECT
        task_id,
        max_by(
            {'speedup': speedup, 'low': speedup_low, 'high': speedup_high, 'device': device},
            speedup_low
        ) AS best
    FROM best_kernels
    WHERE baseline = 'eager'
    GROUP BY task_id
)
SELECT
    task_names.task,
    best.best.speedup AS speedup,
    best.best.low AS speedup_low,
    best.best.high AS speedup_high,
    best.best.device AS device,
    task_names.title,
    task_names.suite || ' ' || task_names.suite_revision AS suite,
    task_names."level",
    task_names.family,
    coalesce(attempts.attempts, 0) AS attempts,
    task_names.split,
    CASE WHEN task_names.degenerate THEN 'trivial' END AS note,
    task_names.task_id, count(*) OVER () AS total, count(best.best) OVER () AS timed
FROM task_names
LEFT JOIN attempts ON attempts.task_id = task_names.task_id
LEFT JOIN best ON best.task_id = task_names.task_id
WHERE true
    AND task_names.suite || ' ' || task_names.suite_revision = $suite
    AND task_names."level"::VARCHAR = $level
    AND task_names.family = $family
    AND contains(lower(concat_ws(' ', task_names.title, task_names.task)), lower($q))
ORDER BY task_names.suite, task_names.suite_revision, task_names."level",
    task_names.problem_id, task, task_names.task_id
