-- The settings of knobs in answers at held-out tasks of known families: by part, family and arm, how
-- many answers have knobs, how many settings they have, the most frequent setting, its share of the
-- answers, and the geometric mean of its speedups. A knob is a constant at the start of a line.
-- Answers of earlier runs, which are in namespaces earlier/, are left out.
WITH answers AS (
    SELECT
        CASE WHEN starts_with(namespace, 'trained-') THEN 'stage 3' ELSE 'search' END AS part,
        regexp_extract(namespace, '^(?:arms/|trained-)([a-z]+)/', 1) AS arm,
        replace(task_names.family, ':held-out', '') AS family,
        array_to_string(
            list_sort(regexp_extract_all(kernels.code, '(?m)^[A-Z_]+ = \d+')), ', '
        ) AS setting,
        generations.kernel_id, generations.task_id
    FROM generations
    INNER JOIN task_names ON task_names.task_id = generations.task_id
    INNER JOIN kernels ON kernels.kernel_id = generations.kernel_id
    WHERE
        regexp_full_match(namespace, '(arms/|trained-[a-z]+/)[a-z]+/\d+/[0-9a-f]+')
        AND ends_with(task_names.family, ':held-out')
),
speeds AS (
    SELECT kernel_id, task_id, min(speedup) AS speedup
    FROM scored_speedups
    GROUP BY kernel_id, task_id
),
settings AS (
    SELECT
        answers.part, answers.family, answers.arm, answers.setting, count(*) AS n,
        exp(avg(ln(speeds.speedup))) AS geomean
    FROM answers
    LEFT JOIN speeds
        ON speeds.kernel_id = answers.kernel_id AND speeds.task_id = answers.task_id
    WHERE answers.setting <> ''
    GROUP BY answers.part, answers.family, answers.arm, answers.setting
)
SELECT
    part, family, arm,
    sum(n)::BIGINT AS answers,
    count(*) AS settings,
    arg_max(setting, (n, setting)) AS most_frequent,
    round(max(n) / sum(n), 4) AS share,
    round(arg_max(geomean, (n, setting)), 3) AS geomean
FROM settings
GROUP BY part, family, arm
ORDER BY part, family, arm
