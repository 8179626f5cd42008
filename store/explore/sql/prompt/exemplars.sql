-- Exemplars
-- Kernels that the prompt showed, with their scores as shown.
WITH shown AS (
    SELECT unnest(exemplar_kernel_ids) AS kernel_id, unnest(exemplar_scores) AS score_as_shown
    FROM generations
    WHERE prompt_id = $prompt
)
SELECT
    shown.kernel_id, shown.score_as_shown, count(*) AS attempts, max(speeds.speedup) AS speedup_now
FROM shown
LEFT JOIN newest_speedups AS speeds
    ON speeds.kernel_id = shown.kernel_id AND speeds.baseline = 'eager'
GROUP BY ALL
ORDER BY shown.score_as_shown DESC, shown.kernel_id
