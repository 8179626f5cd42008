-- Every task with its name, its split, and the kinds of device that it has a workload for. A copy of
-- a test task is of the split test.
SELECT
    tasks.task_id,
    task_names.suite,
    task_names.task AS "name",
    task_names."level",
    CASE WHEN test_tasks.task_id IS NOT NULL THEN 'test' ELSE task_names.split END AS split,
    coalesce(list_sort(list(DISTINCT settings.kind) FILTER (settings.kind IS NOT NULL)), []) AS kinds
FROM tasks
LEFT JOIN task_names ON task_names.task_id = tasks.task_id
LEFT JOIN test_tasks ON test_tasks.task_id = tasks.task_id
LEFT JOIN judged_workloads AS settings ON settings.task_id = tasks.task_id
GROUP BY ALL
ORDER BY task_names.suite, task_names."level", task_names.task, tasks.task_id
