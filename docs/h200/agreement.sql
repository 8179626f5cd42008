-- Whether verdicts on H200s and H100s agree, by precision: kernels that both judged, those with the same verdict,
-- and the tasks of the others. A kernel with several verdicts on a device is correct if all of them are.
-- Kernels released for the H100, with those of trivial tasks.
WITH judged AS (
    SELECT
        evaluations.kernel_id, evaluations.task_id, evaluations."precision",
        bool_and(evaluations.status = 'correct') FILTER (WHERE devices."name" = 'H200') AS on_h200,
        bool_and(evaluations.status = 'correct') FILTER (WHERE devices."name" = 'H100') AS on_h100
    FROM counted_evaluations AS evaluations
    INNER JOIN devices ON devices.device_id = evaluations.device_id
    WHERE
        evaluations.evaluator = 'judge' AND evaluations.status <> 'evaluator_error'
        AND evaluations.kernel_id IN (
            SELECT kernel_id FROM claimed_speedups WHERE gpu = 'H100' AND released
        )
    GROUP BY ALL
)
SELECT
    judged."precision",
    count(*) AS kernels,
    count(*) FILTER (WHERE judged.on_h200 = judged.on_h100) AS same,
    array_to_string(
        list(task_names.task ORDER BY task_names.task) FILTER (WHERE judged.on_h200 <> judged.on_h100), ', '
    ) AS different
FROM judged
INNER JOIN task_names ON task_names.task_id = judged.task_id
WHERE judged.on_h200 IS NOT NULL AND judged.on_h100 IS NOT NULL AND task_names.suite = 'kernelbench'
GROUP BY judged."precision"
ORDER BY judged."precision" DESC
