-- Verdicts
-- Judged kernels of each device by status.
-- Empty: Nothing has been judged yet: evaluators run.
WITH judged AS (
    SELECT
        device,
        max({'failed': NOT correct, 'at': last_judged_at, 'status': status}).status AS status
    FROM outcomes
    GROUP BY kernel_id, task_id, workload_id, device
)
SELECT device, status, count(*) AS verdicts
FROM judged
GROUP BY device, status
ORDER BY
    device,
    list_position(
        ['correct', 'incorrect', 'rejected', 'timeout', 'crash', 'compile_error'], status
    )
