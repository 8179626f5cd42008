-- One row per namespace: the exemplars that its prompts showed, and those that it must not see.
-- own counts exemplars that the namespace had attempted itself, common those without a namespace.
-- leaked counts exemplars that only other namespaces had attempted by then, and must be 0. Prompts of
-- earlier runs, whose verdicts are kept in namespaces earlier/, are left out.
WITH shown AS (
    SELECT
        namespace, prompt_id, task_id, kernel_id, min(created_at) AS shown_at
    FROM (
        SELECT namespace, prompt_id, task_id, created_at, unnest(exemplar_kernel_ids) AS kernel_id
        FROM generations
        WHERE namespace IS NOT NULL AND NOT starts_with(namespace, 'earlier/')
    )
    GROUP BY namespace, prompt_id, task_id, kernel_id
),
origins AS (
    SELECT
        shown.namespace, shown.prompt_id, shown.task_id, shown.kernel_id,
        coalesce(bool_or(attempts.namespace = shown.namespace), false) AS own,
        coalesce(
            bool_or(attempts.kernel_id IS NOT NULL AND attempts.namespace IS NULL), false
        ) AS common
    FROM shown
    LEFT JOIN generations AS attempts
        ON
            attempts.kernel_id = shown.kernel_id
            AND attempts.task_id = shown.task_id
            AND attempts.created_at < shown.shown_at
    GROUP BY shown.namespace, shown.prompt_id, shown.task_id, shown.kernel_id
)
SELECT
    namespace,
    count(DISTINCT prompt_id) AS prompts,
    count(*) AS shown,
    count(*) FILTER (WHERE own) AS own,
    count(*) FILTER (WHERE common AND NOT own) AS common,
    count(*) FILTER (WHERE NOT own AND NOT common) AS leaked
FROM origins
GROUP BY namespace
ORDER BY namespace
