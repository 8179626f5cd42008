-- One row: the mean over tasks of the logarithm of the ratio, with its two parts of variance.
-- A task with several pairs counts once, by their mean. between is the variance of these means
-- over tasks, which has all of within: the variance of a mean that its timing sessions explain.
SELECT
    count(*) AS tasks,
    sum(pairs)::BIGINT AS pairs,
    sum(sessions_a)::BIGINT AS sessions_a,
    sum(sessions_b)::BIGINT AS sessions_b,
    sum(attempts_a)::BIGINT AS attempts_a,
    sum(attempts_b)::BIGINT AS attempts_b,
    avg(mean) AS mean,
    var_samp(mean) AS "between",
    avg(variance) AS within,
    (SELECT list_sort(list(DISTINCT judge_version_a)) FROM _compared) AS judge_versions_a,
    (SELECT list_sort(list(DISTINCT judge_version_b)) FROM _compared) AS judge_versions_b
FROM (
    SELECT
        task_id, count(*) AS pairs, avg(ln(ratio)) AS mean,
        sum(variance) / count(*) ** 2 AS variance,
        sum(sessions_a) AS sessions_a, sum(sessions_b) AS sessions_b,
        any_value(attempts_a) AS attempts_a, any_value(attempts_b) AS attempts_b
    FROM _compared
    GROUP BY task_id
)
