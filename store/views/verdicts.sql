-- One row per kernel, task, workload, device, evaluator and precision: the verdict that counts.
-- Only the newest evaluator version counts, whichever precision it judged by. Within it, any failure of the candidate outweighs a
-- pass, so that a flaky or cheating kernel cannot be judged again until it passes. evaluator_error
-- is a fault of the judge and says nothing about the kernel: a group with no other status has no
-- verdict. Pulled evaluations decide nothing that this lake has judged itself, and elsewhere marks
-- those of kernels that it has judged on another device (counted_evaluations).
--
-- key columns: kernel_id, device, precision, status, reason, last_judged_at
-- evaluations: number of evaluations by the version that counts
-- correct: whether the kernel is correct
-- evaluation_id: evaluation that decides the verdict
WITH judged AS (
    -- One pass; DuckDB leaves out the aggregates of columns that nobody asks for.
    SELECT
        kernel_id, task_id, workload_id, device_id, evaluator, "precision",
        max(evaluator_version) AS evaluator_version,
        -- The newest version decides, in it the newest failure; where there is none, the newest pass.
        max({
            'version': evaluator_version, 'failed': status <> 'correct', 'created_at': created_at,
            'evaluation_id': evaluation_id, 'status': status, 'reason': reason
        }) AS deciding,
        -- The same order for the one question that most views ask.
        max(2 * CAST(evaluator_version AS BIGINT) + CAST(status <> 'correct' AS BIGINT)) % 2 = 0
            AS correct,
        max({'version': evaluator_version, 'created_at': created_at}) AS newest,
        list(evaluator_version) AS versions,
        bool_or(elsewhere) AS elsewhere
    FROM counted_evaluations
    WHERE status <> 'evaluator_error'
    GROUP BY kernel_id, task_id, workload_id, device_id, evaluator, "precision"
)
SELECT
    judged.kernel_id,
    judged.task_id,
    judged.workload_id,
    judged.device_id,
    judged.evaluator,
    judged."precision",
    judged.evaluator_version,
    judged.deciding.status AS status,
    judged.deciding.reason AS reason,
    judged.correct,
    judged.deciding.evaluation_id AS evaluation_id,
    len(list_filter(judged.versions, lambda version: version = judged.evaluator_version))
        AS evaluations,
    judged.newest.created_at AS last_judged_at,
    judged.elsewhere,
    devices."name" AS device
FROM judged
LEFT JOIN devices ON devices.device_id = judged.device_id
QUALIFY judged.evaluator_version = max(judged.evaluator_version) OVER (
    PARTITION BY
        judged.kernel_id, judged.task_id, judged.workload_id, judged.device_id, judged.evaluator
)
