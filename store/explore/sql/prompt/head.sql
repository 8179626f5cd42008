-- The prompt
SELECT
    prompts.prompt_id, prompts.task_id, prompts.purpose, prompts.template_hash, prompts.created_at,
    task_names.task
FROM prompts
LEFT JOIN task_names ON task_names.task_id = prompts.task_id
WHERE prompts.prompt_id = $prompt
ORDER BY prompts.prompt_id
