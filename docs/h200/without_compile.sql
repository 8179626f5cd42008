-- Correct kernels without the baseline compile, one row per device and precision: kernels, their tasks, and
-- those among them that lack it under both policies. Verdicts for which the judge left out baselines
-- for want of memory (fewer_baselines) do not count. Released kernels of all GPUs.
WITH lacking AS (
    SELECT DISTINCT
        devices."name" AS device, evaluations."precision", evaluations.kernel_id, evaluations.task_id
    FROM evaluations
    INNER JOIN devices ON devices.device_id = evaluations.device_id
    WHERE
        devices.kind = 'cuda' AND evaluations.status = 'correct'
        AND evaluations.kernel_id IN (SELECT kernel_id FROM generations)
        AND NOT list_contains(evaluations.flags, 'fewer_baselines')
        AND evaluations.evaluation_id IN (SELECT evaluation_id FROM timings)
        AND evaluations.evaluation_id NOT IN (
            SELECT evaluation_id FROM timings WHERE arm = 'compile'
        )
)
SELECT
    lacking.device, lacking."precision",
    count(*) AS kernels,
    count(DISTINCT lacking.task_id) AS tasks,
    count(other.kernel_id) AS under_both
FROM lacking
LEFT JOIN lacking AS other
    ON
        other.device = lacking.device AND other.kernel_id = lacking.kernel_id
        AND other.task_id = lacking.task_id AND other."precision" <> lacking."precision"
        AND 'allow_tf32' NOT IN (other."precision", lacking."precision")
GROUP BY lacking.device, lacking."precision"
ORDER BY lacking.device DESC, lacking."precision" DESC
