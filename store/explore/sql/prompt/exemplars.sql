-- Exemplars
-- Kernels that the prompt showed, with their scores as shown. A kernel that computes another
-- function has no speedup now.
WITH shown AS (
    SELECT unnest(exemplar_kernel_ids) AS kernel_id, unnest(exemplar_scores) AS score_as_shown
    FROM generations
    WHERE prompt_id = $prompt
)
SELECT
    shown.kernel_id, shown.score_as_shown, count(*) AS attempts,
    max(speeds.speedup) FILTER (WHERE nonequivalent.kernel_id IS NULL) AS speedup_now
FROM shown
LEFT JOIN pooled_speedups AS speeds
    ON speeds.kernel_id = shown.kernel_id AND speeds.baseline = 'eager'
LEFT JOIN nonequivalent
    ON nonequivalent.kernel_id = speeds.kernel_id AND nonequivalent.task_id = speeds.task_id
GROUP BY ALL
ORDER BY shown.score_as_shown DESC, shown.kernel_id
