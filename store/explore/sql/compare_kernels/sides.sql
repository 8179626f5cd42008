-- The two kernels
SELECT
    CASE WHEN kernels.kernel_id = $a THEN 'A' ELSE 'B' END AS side, kernels.kernel_id,
    task_names.task, written.policy,
    described."language", described.code_lines AS lines,
    array_to_string(described.techniques, ', ') AS techniques,
    written.task_id
FROM kernels
LEFT JOIN (SELECT * FROM features WHERE kernel_id IN ($a, $b)) AS described
    ON described.kernel_id = kernels.kernel_id
LEFT JOIN (SELECT * FROM authors WHERE kernel_id IN ($a, $b)) AS written
    ON written.kernel_id = kernels.kernel_id
LEFT JOIN task_names ON task_names.task_id = written.task_id
WHERE kernels.kernel_id IN ($a, $b)
ORDER BY side, task
