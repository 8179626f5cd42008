-- One row per task asked for, in an order drawn by a hash. `asked` is registered: the tasks.
SELECT task_id, CAST([] AS VARCHAR[]) AS kernel_ids
FROM asked
ORDER BY md5_number_lower(concat_ws(':', $seed, 'task', task_id)), task_id
