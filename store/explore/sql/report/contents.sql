-- What the lake holds
-- Rows at this snapshot, and how many of them need care when you read the figures.
-- A timing session reads several clocks. It can rank by a clock, as in the view speedups, if it is
-- not disturbed, its baseline is not too short for that clock, no other work ran on the host, and
-- the evaluation is one that counts.
SELECT * EXCLUDE (place)
FROM (
    SELECT
        1 AS place, 'tasks' AS what, count(*) AS count,
        count(*) FILTER (WHERE split = 'test') AS "of which", 'in the test split' AS which
    FROM task_names
    UNION ALL
    SELECT
        2, 'tasks audited for answers without work', count(DISTINCT task_id),
        (SELECT count(*) FROM weak_tasks), 'trivial, by audit or label: left out of tables'
    FROM task_audits
    UNION ALL
    SELECT
        3, 'kernels, distinct texts', count(*),
        count(*) FILTER (WHERE features.has_device_code), 'contain device code (CUDA or Triton)'
    FROM kernels
    LEFT JOIN features ON features.kernel_id = kernels.kernel_id
    UNION ALL
    SELECT 4, 'attempts', count(*), count(*) FILTER (WHERE kernel_id IS NULL), 'without a kernel'
    FROM generations
    UNION ALL
    SELECT
        5, 'verdicts, by kernel, workload and device', count(*), count(*) FILTER (WHERE correct),
        'correct'
    FROM (
        SELECT bool_and(correct) AS correct
        FROM outcomes
        GROUP BY kernel_id, task_id, workload_id, device
    )
    UNION ALL
    SELECT
        6, 'correct kernels, by task', count(*), (SELECT count(*) FROM nonequivalent),
        'compute another function than the task: left out of rankings'
    FROM (SELECT DISTINCT kernel_id, task_id FROM outcomes WHERE correct)
    UNION ALL
    SELECT
        7, 'timing sessions', count(DISTINCT session_id),
        (SELECT count(DISTINCT session_id) FROM speedups WHERE NOT disturbed AND NOT unresolved),
        'quiet by a clock: the others rank nothing'
    FROM timings
    UNION ALL
    SELECT
        8, 'timing sessions, by the clock ' || timed.clock, count(*), count(quiet.session_id),
        'quiet by this clock: the others rank nothing by it'
    FROM (SELECT DISTINCT session_id, clock FROM clocked_timings) AS timed
    LEFT JOIN (
        SELECT DISTINCT session_id, clock FROM speedups WHERE NOT disturbed AND NOT unresolved
    ) AS quiet
        ON quiet.session_id = timed.session_id AND quiet.clock = timed.clock
    WHERE timed.clock IS NOT NULL
    GROUP BY timed.clock
    UNION ALL
    SELECT
        9, 'published figures', count(*), count(*) FILTER (WHERE kernel_id IS NULL),
        'without released code'
    FROM current_claims
    UNION ALL
    SELECT
        10, 'kernels with findings', count(*), count(*) FILTER (WHERE quarantined),
        'quarantined: in no ranking and no dataset'
    FROM suspects
    UNION ALL
    SELECT 11, 'datasets', count(*), sum("rows")::BIGINT, 'rows in all' FROM datasets
    UNION ALL
    SELECT
        12, 'runs', count(*), count(*) FILTER (WHERE kind IN ('training', 'rollout')),
        'of training or sampling'
    FROM runs
)
ORDER BY place, what
