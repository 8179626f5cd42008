-- Do analyses name the exemplar that the labels of the prompt call the fastest? By namespace prefix,
-- arm and the ratio of the higher label to the lower (at least 1, 1.5 or 3), over answers with an
-- analysis that names one of their two exemplars: the share that names the one with the higher label.
-- swapped counts the answers whose labels contradict the measured speedups over eager, and followed
-- those of them whose analysis names the one with the higher label. Answers of earlier runs, which
-- are in namespaces earlier/, and those at held-out families are left out.
WITH speeds AS (
    SELECT kernel_id, task_id, min(speedup) AS speedup
    FROM scored_speedups
    WHERE baseline = 'eager'
    GROUP BY kernel_id, task_id
),
named AS (
    SELECT
        regexp_extract(generations.namespace, '^([^/]+)/', 1) AS search,
        regexp_extract(generations.namespace, '^[^/]+/([a-z]+)/', 1) AS arm,
        list_max(generations.exemplar_scores) / list_min(generations.exemplar_scores) AS gap,
        analyses.fastest_kernel_id
        = generations.exemplar_kernel_ids[list_position(
            generations.exemplar_scores, list_max(generations.exemplar_scores)
        )] AS names_top,
        (first.speedup > second.speedup)
        <> (generations.exemplar_scores[1] > generations.exemplar_scores[2]) AS swapped
    FROM generations
    INNER JOIN task_names ON task_names.task_id = generations.task_id
    INNER JOIN analyses ON analyses.generation_id = generations.generation_id
    LEFT JOIN speeds AS first
        ON
            first.kernel_id = generations.exemplar_kernel_ids[1]
            AND first.task_id = generations.task_id
    LEFT JOIN speeds AS second
        ON
            second.kernel_id = generations.exemplar_kernel_ids[2]
            AND second.task_id = generations.task_id
    WHERE
        NOT starts_with(generations.namespace, 'earlier/')
        AND len(generations.exemplar_kernel_ids) = 2
        AND generations.exemplar_scores[1] <> generations.exemplar_scores[2]
        AND list_contains(generations.exemplar_kernel_ids, analyses.fastest_kernel_id)
        AND (task_names.split = 'train' OR ends_with(task_names.family, ':held-out'))
)
SELECT
    search, arm,
    CASE WHEN gap >= 3 THEN 3.0 WHEN gap >= 1.5 THEN 1.5 ELSE 1.0 END AS at_least,
    count(*) AS answers,
    round(avg(CAST(names_top AS INTEGER)), 4) AS names_top,
    count(*) FILTER (swapped) AS swapped,
    count(*) FILTER (swapped AND names_top) AS followed
FROM named
GROUP BY search, arm, at_least
ORDER BY search, arm, at_least
