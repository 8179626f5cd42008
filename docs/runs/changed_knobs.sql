-- Are answers changed exemplars? One row per namespace prefix and arm, over prompts with two or more
-- exemplars and answers with knobs, which are constants at the start of a line. own is the mean
-- number of knobs that differ from the exemplar in the prompt that has most of them in common, and
-- other the same number for exemplars that were shown at other tasks of the family in this arm: the
-- mean over their prompts. An answer that is a changed exemplar has less own than other. Answers of
-- earlier runs, which are in namespaces earlier/, are left out.
WITH knobs AS (
    SELECT kernel_id, regexp_extract_all(code, '(?m)^[A-Z_]+ = \d+') AS knobs FROM kernels
),
answers AS (
    SELECT
        regexp_extract(generations.namespace, '^([^/]+)/', 1) AS search,
        regexp_extract(generations.namespace, '^[^/]+/([a-z]+)/', 1) AS arm,
        task_names.family, generations.task_id, generations.generation_id,
        generations.exemplar_kernel_ids, knobs.knobs
    FROM generations
    INNER JOIN task_names ON task_names.task_id = generations.task_id
    INNER JOIN knobs ON knobs.kernel_id = generations.kernel_id
    WHERE
        generations.namespace IS NOT NULL
        AND NOT starts_with(generations.namespace, 'earlier/')
        AND len(generations.exemplar_kernel_ids) > 1
        AND len(knobs.knobs) > 0
),
prompts AS (
    SELECT DISTINCT search, arm, family, task_id, exemplar_kernel_ids FROM answers
),
shown AS (
    SELECT
        prompts.search, prompts.arm, prompts.family, prompts.task_id,
        prompts.exemplar_kernel_ids, knobs.knobs
    FROM prompts
    INNER JOIN knobs ON list_contains(prompts.exemplar_kernel_ids, knobs.kernel_id)
),
changes AS (
    SELECT
        answers.search, answers.arm, answers.generation_id, shown.task_id,
        shown.task_id = answers.task_id AS own,
        min(
            greatest(len(answers.knobs), len(shown.knobs))
            - len(list_intersect(answers.knobs, shown.knobs))
        ) AS changed
    FROM answers
    INNER JOIN shown
        ON
            shown.search = answers.search
            AND shown.arm = answers.arm
            AND shown.family = answers.family
    WHERE
        shown.task_id <> answers.task_id
        OR shown.exemplar_kernel_ids = answers.exemplar_kernel_ids
    GROUP BY
        answers.search, answers.arm, answers.generation_id, shown.task_id, own,
        shown.exemplar_kernel_ids
),
means AS (
    SELECT
        search, arm, generation_id,
        avg(changed) FILTER (own) AS own,
        avg(changed) FILTER (NOT own) AS other
    FROM changes
    GROUP BY search, arm, generation_id
)
SELECT
    search, arm,
    count(*) AS answers,
    round(avg(own), 4) AS own,
    round(avg(other), 4) AS other
FROM means
WHERE other IS NOT NULL
GROUP BY search, arm
ORDER BY search, arm
