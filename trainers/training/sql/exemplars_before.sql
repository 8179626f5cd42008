-- One row per exemplar shown by a training run: when it was measured and when it was shown.
-- shown_late holds of none: a prompt shows what was measured before it.
SELECT
    generations.run_id,
    steps.step,
    generations.group_id,
    generations.snapshot_id,
    exemplar.kernel_id,
    exemplar.score,
    min(sessions.measured_at) AS measured_at,
    min(generations.created_at) AS shown_at,
    coalesce(min(sessions.measured_at) >= min(generations.created_at), true) AS shown_late,
    min(own.step) AS written_at_step
FROM (
    SELECT
        *,
        unnest(list_transform(
            exemplar_kernel_ids,
            lambda kernel_id, place: {'kernel_id': kernel_id, 'score': exemplar_scores[place]}
        )) AS exemplar
    FROM generations
    WHERE run_id IS NOT NULL AND len(exemplar_kernel_ids) > 0
) AS generations
LEFT JOIN run_steps AS steps
    ON steps.generation_id = generations.generation_id AND steps.run_id = generations.run_id
LEFT JOIN speedups AS sessions
    ON
        sessions.kernel_id = generations.exemplar.kernel_id
        AND sessions.task_id = generations.task_id
LEFT JOIN run_steps AS own
    ON own.kernel_id = generations.exemplar.kernel_id AND own.run_id = generations.run_id
GROUP BY ALL
ORDER BY generations.run_id, steps.step, generations.group_id, exemplar.kernel_id
