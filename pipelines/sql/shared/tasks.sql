-- One row per task: whether a dataset of this purpose may ask for it, or why not.
-- A task without a split trains, unless it is a copy of a test task (view test_tasks). A split
-- looks at all labels of a task (view task_names). Evaluation asks for tasks whose own labels say
-- test, so that copies do not count twice. With $tasks, only these tasks are looked at. `held_out`
-- is registered; it has no rows for evaluation.
SELECT
    task_names.task_id,
    CASE
        WHEN held_out.copy_of IS NOT NULL THEN 'copy of a test task'
        WHEN held_out.task_id IS NOT NULL THEN 'test split'
        WHEN $purpose = 'eval' AND task_names.split IS DISTINCT FROM 'test' THEN 'train split'
        WHEN task_names.degenerate AND NOT $include_trivial THEN 'trivial'
    END AS dropped
FROM task_names
LEFT JOIN held_out ON held_out.task_id = task_names.task_id
WHERE $tasks IS NULL OR list_contains(CAST($tasks AS VARCHAR[]), task_names.task_id)
