-- Task by task
-- The best speedup over eager that each run reached, where it has one. ratio is above 1 if B is
-- faster.
WITH best AS (
    SELECT
        task_id, task, device, run_id, max(speedup) AS speedup,
        max_by(kernel_id, speedup) AS kernel_id
    FROM run_bests
    WHERE run_id IN ($a, $b) AND baseline = 'eager'
    GROUP BY task_id, task, device, run_id
)
SELECT
    task, max(speedup) FILTER (WHERE run_id = $a) AS speedup_a,
    max(speedup) FILTER (WHERE run_id = $b) AS speedup_b,
    speedup_b / speedup_a AS ratio, device,
    any_value(kernel_id) FILTER (WHERE run_id = $a) AS a_kernel_id,
    any_value(kernel_id) FILTER (WHERE run_id = $b) AS b_kernel_id, task_id
FROM best
GROUP BY task, device, task_id
ORDER BY ratio DESC NULLS LAST, task, device
