-- One row per kernel, task, workload and device with a speedup over eager: whether it may leave.
-- left_out says why not; it is NULL for a kernel that may, if its license permits it. Equivalence,
-- quarantine and trivial tasks are those of the views.
-- Parameters: task (an id, NULL for every task).
WITH labels AS (
    SELECT task_id, suite, suite_revision, "level", task, title, family, degenerate
    FROM task_names
    WHERE $task IS NULL OR task_id = $task
)
SELECT
    speeds.task_id, labels.task, labels.title, labels.suite, labels.suite_revision,
    labels."level", labels.family,
    speeds.workload_id, workloads."name" AS workload, workloads.axes,
    speeds.device, devices.kind,
    speeds.kernel_id, authors.policy AS author, features."language",
    speeds.clock, speeds."precision", speeds.threads, speeds.sessions, speeds.n,
    speeds.kernel_ms, speeds.baseline_ms, speeds.speedup, speeds.speedup_low,
    speeds.speedup_high, speeds.evaluator, speeds.evaluator_version, speeds.evaluation_id,
    speeds.session_id, speeds.measured_at,
    devices.torch, devices.cuda, devices.triton, devices.compiler, devices.driver,
    evaluations.origin, evaluations.source_revision AS origin_revision,
    coalesce(fragile.flags, []) AS fragile, shapes.shapes,
    kernels.source, kernels.source_revision, kernels.license, tasks.license AS task_license,
    list_append(list_transform(kernels.other_files, lambda one: one.path), kernels.path) AS paths,
    CASE
        WHEN NOT speeds.equivalent THEN 'another function than the task'
        WHEN withheld.kernel_id IS NOT NULL THEN withheld.reason
        WHEN NOT speeds.ranked THEN 'does not rank'
        WHEN labels.degenerate THEN 'a trivial task'
        WHEN
            len(kernels.build_flags) > 0
            OR len(list_filter(kernels.other_files, lambda one: ends_with(one.path, '.py'))) > 0
            THEN 'several Python files or compiler flags'
        WHEN
            len(list_filter(
                paths,
                -- Parts of a path begin with a letter, a digit or an underscore, and no file is the
                -- folder of another.
                lambda path:
                    NOT regexp_full_match(path, '(\w[\w.+-]*/)*\w[\w.+-]*')
                    OR len(path) > 200
                    OR len(list_filter(paths, lambda other: starts_with(other, path || '/'))) > 0
            )) > 0
            THEN 'a path that is no plain name'
        WHEN
            workloads.dtype IS NOT NULL
            OR speeds."precision" NOT IN ('torch_default', 'fp32_strict')
            THEN 'judged by another precision than torch''s'
        WHEN speeds.speedup_low <= 1 THEN 'not faster than eager'
    END AS left_out
FROM kernel_speedups AS speeds
INNER JOIN labels ON labels.task_id = speeds.task_id
INNER JOIN tasks ON tasks.task_id = speeds.task_id
INNER JOIN kernels ON kernels.kernel_id = speeds.kernel_id
INNER JOIN workloads ON workloads.workload_id = speeds.workload_id
INNER JOIN devices ON devices.device_id = speeds.device_id
LEFT JOIN evaluations ON evaluations.evaluation_id = speeds.evaluation_id
LEFT JOIN authors ON authors.kernel_id = speeds.kernel_id AND authors.task_id = speeds.task_id
LEFT JOIN features ON features.kernel_id = speeds.kernel_id
LEFT JOIN withheld ON withheld.kernel_id = speeds.kernel_id
LEFT JOIN fragile ON fragile.kernel_id = speeds.kernel_id AND fragile.task_id = speeds.task_id
LEFT JOIN shapes
    ON
        shapes.kernel_id = speeds.kernel_id
        AND shapes.task_id = speeds.task_id
        AND shapes.device = speeds.device
WHERE speeds.baseline = 'eager'
