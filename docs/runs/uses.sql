-- Do answers use what their prompts show? One row per namespace prefix and arm, over prompts with two or
-- more exemplars and answers with code. distance is Levenshtein's, in characters, to the nearest
-- exemplar; one or two characters are one knob. copies is the share with the text of an exemplar, and
-- other_setting the share whose setting of knobs (settings.sql) no exemplar has. to_fastest is the
-- share of answers that are nearest to the exemplar with the highest score as shown, and
-- to_truly_fastest to the one that was measured as the fastest. For an answer that takes no notice of
-- scores, both are 0.5 with two exemplars. names_fastest is the share whose analysis names an
-- exemplar with the highest score as shown. Answers of earlier runs, which are in namespaces
-- earlier/, are left out.
WITH answers AS (
    SELECT
        regexp_extract(namespace, '^([^/]+)/', 1) AS search,
        regexp_extract(namespace, '^[^/]+/([a-z]+)/', 1) AS arm,
        generation_id, task_id, kernel_id, exemplar_kernel_ids, exemplar_scores
    FROM generations
    WHERE
        namespace IS NOT NULL
        AND NOT starts_with(namespace, 'earlier/')
        AND kernel_id IS NOT NULL
        AND len(exemplar_kernel_ids) > 1
),
shown AS (
    SELECT
        search, arm, generation_id, task_id, kernel_id,
        unnest(exemplar_kernel_ids) AS exemplar_id,
        unnest(exemplar_scores) AS score
    FROM answers
),
speeds AS (
    SELECT kernel_id, task_id, max(speedup) AS speedup
    FROM scored_speedups
    WHERE baseline = 'eager'
    GROUP BY kernel_id, task_id
),
distances AS (
    SELECT
        shown.search, shown.arm, shown.generation_id, shown.exemplar_id, shown.score,
        speeds.speedup,
        levenshtein(answer.code, exemplar.code) AS distance,
        list_sort(regexp_extract_all(answer.code, '(?m)^[A-Z_]+ = \d+'))
        = list_sort(regexp_extract_all(exemplar.code, '(?m)^[A-Z_]+ = \d+')) AS same_setting
    FROM shown
    INNER JOIN kernels AS answer ON answer.kernel_id = shown.kernel_id
    INNER JOIN kernels AS exemplar ON exemplar.kernel_id = shown.exemplar_id
    LEFT JOIN speeds
        ON speeds.kernel_id = shown.exemplar_id AND speeds.task_id = shown.task_id
),
nearest AS (
    SELECT
        search, arm, generation_id,
        min(distance) AS distance,
        bool_or(same_setting) AS same_setting,
        max(score) AS top_score,
        arg_min(exemplar_id, {'distance': distance, 'id': exemplar_id}) AS nearest_id,
        arg_max(exemplar_id, {'score': score, 'id': exemplar_id}) AS fastest_id,
        arg_max(exemplar_id, {'speedup': speedup, 'id': exemplar_id}) AS truly_fastest_id
    FROM distances
    GROUP BY search, arm, generation_id
)
SELECT
    nearest.search, nearest.arm,
    count(*) AS answers,
    round(median(nearest.distance), 1) AS distance,
    round(avg(CAST(nearest.distance = 0 AS INTEGER)), 4) AS copies,
    round(avg(CAST(NOT nearest.same_setting AS INTEGER)), 4) AS other_setting,
    round(avg(CAST(nearest.nearest_id = nearest.fastest_id AS INTEGER)), 4) AS to_fastest,
    round(avg(CAST(nearest.nearest_id = nearest.truly_fastest_id AS INTEGER)), 4)
        AS to_truly_fastest,
    round(avg(CAST(named.score = nearest.top_score AS INTEGER)), 4) AS names_fastest
FROM nearest
LEFT JOIN analyses ON analyses.generation_id = nearest.generation_id
LEFT JOIN distances AS named
    ON
        named.generation_id = analyses.generation_id
        AND named.exemplar_id = analyses.fastest_kernel_id
GROUP BY nearest.search, nearest.arm
ORDER BY nearest.search, nearest.arm
