-- Verdicts by reason
-- One row per device, status and reason. share is of all judged kernels of the device. A kernel is
-- correct if every evaluator says so on every device of this name.
-- Empty: Nothing has been judged yet: evaluators run.
WITH judged AS (
    SELECT
        device, task_id,
        max({
            'failed': NOT correct, 'last_judged_at': last_judged_at, 'status': status,
            'reason': reason
        }) AS deciding
    FROM outcomes
    GROUP BY kernel_id, task_id, workload_id, device
)
SELECT
    device, deciding.status AS status, deciding.reason AS reason,
    count(*) AS verdicts,
    count(DISTINCT task_id) AS tasks,
    count(*) / sum(count(*)) OVER (PARTITION BY device) AS share
FROM judged
GROUP BY device, deciding.status, deciding.reason
ORDER BY
    device,
    list_position(
        ['correct', 'incorrect', 'rejected', 'timeout', 'crash', 'compile_error'],
        deciding.status
    ),
    verdicts DESC, reason
LIMIT 120
