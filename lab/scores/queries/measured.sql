-- One row per task and setting of rows or columns that earlier runs in docs/runs have measured: the
-- geometric mean of its sessions. Read by the rehearsal alone.
SELECT
    replace(task_names.family, ':held-out', '') AS family,
    json_extract_string(workloads.axes, '$.ROWS') || ' x '
    || json_extract_string(workloads.axes, '$.COLS') AS shape,
    sessions.task_id,
    array_to_string(
        list_transform(
            regexp_extract_all(kernels.code, '(?m)^[A-Z_]+ = \d+'),
            lambda line: replace(line, ' = ', '=')
        ),
        ' '
    ) AS setting,
    avg(ln(sessions.speedup)) AS log_speedup
FROM session_speedups AS sessions
INNER JOIN kernels ON kernels.kernel_id = sessions.kernel_id
INNER JOIN task_names ON task_names.task_id = sessions.task_id
INNER JOIN workloads ON workloads.workload_id = sessions.workload_id
WHERE
    sessions.baseline = 'eager'
    AND sessions.speedup IS NOT NULL
    AND contains(kernels.code, '@triton.jit')
    AND replace(task_names.family, ':held-out', '') IN ('tuned_rows', 'tuned_columns')
GROUP BY ALL
ORDER BY ALL
