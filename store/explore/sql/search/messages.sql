-- Evaluations by message
SELECT
    evaluations.kernel_id, evaluations.status, evaluations.reason, evaluations.message,
    task_names.task, evaluations.created_at AS judged_at, evaluations.task_id
FROM evaluations
LEFT JOIN task_names ON task_names.task_id = evaluations.task_id
WHERE contains(lower(evaluations.message), lower($q))
ORDER BY judged_at DESC, evaluations.evaluation_id
