-- Do answers use settings of knobs that the supervised training taught? By namespace prefix, arm and
-- step: answers with knobs, and the shares whose setting the supervised rows have only as the answer
-- to a bare prompt, only as the answer to a prompt with kernels, as both, and as neither. Answers of
-- earlier runs, which are in namespaces earlier/, and those at held-out families are left out.
WITH settings AS (
    SELECT
        kernel_id,
        array_to_string(list_sort(regexp_extract_all(code, '(?m)^[A-Z_]+ = \d+')), ', ') AS setting
    FROM kernels
),
taught AS (
    SELECT
        settings.setting,
        bool_or(len(dataset_rows.kernel_ids) = 1) AS bare,
        bool_or(len(dataset_rows.kernel_ids) > 1) AS shown
    FROM dataset_rows
    INNER JOIN datasets ON datasets.dataset_id = dataset_rows.dataset_id
    INNER JOIN settings ON settings.kernel_id = dataset_rows.kernel_ids[-1]
    WHERE datasets.pipeline = 'sft'
    GROUP BY settings.setting
),
answers AS (
    SELECT
        regexp_extract(generations.namespace, '^([^/]+)/', 1) AS search,
        regexp_extract(generations.namespace, '^[^/]+/([a-z]+)/', 1) AS arm,
        generations.step,
        coalesce(taught.bare, false) AS bare,
        coalesce(taught.shown, false) AS shown
    FROM generations
    INNER JOIN task_names ON task_names.task_id = generations.task_id
    INNER JOIN settings ON settings.kernel_id = generations.kernel_id
    LEFT JOIN taught ON taught.setting = settings.setting
    WHERE
        NOT starts_with(generations.namespace, 'earlier/')
        AND settings.setting <> ''
        AND (task_names.split = 'train' OR ends_with(task_names.family, ':held-out'))
)
SELECT
    search, arm, step,
    count(*) AS answers,
    round(avg(CAST(bare AND NOT shown AS INTEGER)), 4) AS only_bare,
    round(avg(CAST(shown AND NOT bare AS INTEGER)), 4) AS only_shown,
    round(avg(CAST(bare AND shown AS INTEGER)), 4) AS "both",
    round(avg(CAST(NOT (bare OR shown) AS INTEGER)), 4) AS neither
FROM answers
GROUP BY search, arm, step
ORDER BY search, arm, step
