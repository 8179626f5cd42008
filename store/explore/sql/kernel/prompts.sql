-- Prompts that showed it
SELECT
    generations.prompt_id, task_names.task, count(*) AS attempts,
    count(DISTINCT generations.kernel_id) AS kernels,
    min(generations.created_at) AS first_sent, generations.task_id
FROM generations
LEFT JOIN task_names ON task_names.task_id = generations.task_id
WHERE list_contains(generations.exemplar_kernel_ids, $kernel) AND generations.prompt_id IS NOT NULL
GROUP BY ALL
ORDER BY first_sent, generations.prompt_id
