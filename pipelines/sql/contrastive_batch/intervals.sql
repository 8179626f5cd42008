-- The scores of one task's kernels with their intervals, fastest first. `eligible` is defined.
SELECT kernel_id, score, score_low, score_high
FROM eligible
ORDER BY score DESC, kernel_id
