-- Do family and sizes alone say which setting of knobs is faster? One row per family, over all pairs of
-- settings that were judged at two tasks of the family with the same sizes. r2 is the share of the
-- mean square of the ratio of the two speedups (in logarithms) at one task that the ratio at the other
-- task predicts. same_order is the share of pairs with the same order at both tasks, among those that
-- differ by over 10 % at both (distinct_pairs). Speedups are over eager.
WITH speeds AS (
    SELECT kernel_id, task_id, min(speedup) AS speedup
    FROM scored_speedups
    WHERE baseline = 'eager'
    GROUP BY kernel_id, task_id
),
settings AS (
    SELECT
        replace(task_names.family, ':held-out', '') AS family,
        workloads.axes, speeds.task_id,
        array_to_string(
            list_sort(regexp_extract_all(kernels.code, '(?m)^[A-Z_]+ = \d+')), ', '
        ) AS setting,
        avg(ln(speeds.speedup)) AS gain
    FROM speeds
    INNER JOIN kernels ON kernels.kernel_id = speeds.kernel_id
    INNER JOIN task_names ON task_names.task_id = speeds.task_id
    INNER JOIN workloads ON workloads.task_id = speeds.task_id AND workloads.name = 'cuda'
    WHERE starts_with(task_names.family, 'tuned_') AND kernels.code LIKE '%import triton%'
    GROUP BY ALL
    HAVING setting <> ''
),
pairs AS (
    SELECT
        settings.family, settings.axes, settings.task_id,
        settings.setting, others.setting AS other, settings.gain - others.gain AS gain
    FROM settings
    INNER JOIN settings AS others
        ON others.task_id = settings.task_id AND others.setting > settings.setting
)
SELECT
    pairs.family,
    len(list_distinct(list(pairs.task_id) || list(others.task_id))) AS tasks,
    count(*) AS pairs,
    round(
        1 - avg(pow(pairs.gain - others.gain, 2)) / avg(pow(pairs.gain, 2) + pow(others.gain, 2)), 4
    ) AS r2,
    count(*) FILTER (least(abs(pairs.gain), abs(others.gain)) > ln(1.1)) AS distinct_pairs,
    round(
        avg(CAST(sign(pairs.gain) = sign(others.gain) AS INTEGER))
        FILTER (least(abs(pairs.gain), abs(others.gain)) > ln(1.1)), 4
    ) AS same_order
FROM pairs
INNER JOIN pairs AS others
    ON
        others.family = pairs.family
        AND others.axes = pairs.axes
        AND others.setting = pairs.setting
        AND others.other = pairs.other
        AND others.task_id > pairs.task_id
GROUP BY pairs.family
ORDER BY pairs.family
