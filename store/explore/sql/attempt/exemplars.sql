-- Exemplars
-- Kernels that the prompt showed, with their scores as shown beside their speedup now over
-- eager. A kernel that computes another function has no speedup now.
WITH shown AS (
    SELECT
        task_id, unnest(exemplar_kernel_ids) AS kernel_id,
        unnest(exemplar_scores) AS score_as_shown,
        generate_subscripts(exemplar_kernel_ids, 1) AS place
    FROM generations
    WHERE generation_id = $attempt
)
SELECT
    shown.place, shown.kernel_id, shown.score_as_shown,
    max(speeds.speedup) FILTER (WHERE nonequivalent.kernel_id IS NULL) AS speedup_now,
    features."language",
    array_to_string(features.techniques, ', ') AS techniques
FROM shown
LEFT JOIN pooled_speedups AS speeds
    ON speeds.kernel_id = shown.kernel_id
        AND speeds.task_id = shown.task_id
        AND speeds.baseline = 'eager'
LEFT JOIN nonequivalent
    ON nonequivalent.kernel_id = shown.kernel_id AND nonequivalent.task_id = shown.task_id
LEFT JOIN features ON features.kernel_id = shown.kernel_id
GROUP BY ALL
ORDER BY shown.place
