-- One row per kernel, task, workload and device: the verdict of all evaluators together.
-- A kernel is correct if every evaluator that judged it says so; one failing verdict is enough to
-- fail it.
WITH judged AS (
    SELECT
        kernel_id, task_id, workload_id, device_id, device,
        count(*) AS evaluators,
        max(last_judged_at) AS last_judged_at,
        max({
            'failed': status <> 'correct', 'last_judged_at': last_judged_at,
            'evaluator': evaluator, 'status': status, 'reason': reason
        }) AS deciding
    FROM verdicts
    GROUP BY kernel_id, task_id, workload_id, device_id, device
)
SELECT
    kernel_id, task_id, workload_id, device_id, device,
    NOT deciding.failed AS correct,
    deciding.status AS status,
    deciding.reason AS reason,
    deciding.evaluator AS evaluator,
    evaluators,
    last_judged_at
FROM judged
