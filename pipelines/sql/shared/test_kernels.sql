-- One row per kernel that is an attempt at one of `held_out`, or the released code of a baseline
-- of one. `held_out` is registered; it has no rows but for training.
SELECT generations.kernel_id
FROM generations
SEMI JOIN held_out ON held_out.task_id = generations.task_id
WHERE generations.kernel_id IS NOT NULL
UNION
SELECT claims.baseline_kernel_id
FROM claims
SEMI JOIN held_out ON held_out.task_id = claims.task_id
WHERE claims.baseline_kernel_id IS NOT NULL
