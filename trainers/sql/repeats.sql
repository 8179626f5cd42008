-- One row per kernel and task of a round: how often it was written. `groups` is registered.
SELECT generations.task_id, generations.kernel_id, count(*) AS times
FROM generations
SEMI JOIN groups ON groups.group_id = generations.group_id
WHERE generations.kernel_id IS NOT NULL AND generations.origin IS NULL
GROUP BY generations.task_id, generations.kernel_id
