-- One row per task and kernel that was judged and is correct nowhere: its verdict, and why no row may
-- hold it.
-- Of several verdicts the first in alphabetical order counts. Registered are `asked`, the tasks, and
-- `excluded`.
WITH failed AS (
    SELECT
        outcomes.task_id, outcomes.kernel_id,
        min({
            'status': outcomes.status, 'reason': outcomes.reason, 'device': outcomes.device,
            'device_id': outcomes.device_id, 'evaluation_id': outcomes.evaluation_id
        }) FILTER (WHERE NOT outcomes.correct) AS verdict
    FROM outcomes
    SEMI JOIN asked ON asked.task_id = outcomes.task_id
    GROUP BY outcomes.task_id, outcomes.kernel_id
    HAVING NOT bool_or(outcomes.correct)
)
SELECT
    failed.task_id,
    failed.kernel_id,
    failed.verdict.status AS status,
    failed.verdict.reason AS reason,
    failed.verdict.device AS device,
    devices.kind AS device_kind,
    failed.verdict.evaluation_id AS evaluation_id,
    excluded.reason AS dropped
FROM failed
INNER JOIN devices ON devices.device_id = failed.verdict.device_id
LEFT JOIN excluded ON excluded.kernel_id = failed.kernel_id
