-- Best kernels over time
-- Each step at which the best speedup of a task over eager rose, newest first. record: above
-- everything that the lake had measured before.
SELECT
    step, speedup, speedup_low, task, device, previous_low, record, kernel_id,
    left(generation_id, 13) AS attempt, generation_id, task_id
FROM run_bests
WHERE run_id = $run AND baseline = 'eager'
ORDER BY step DESC NULLS LAST, task, device, kernel_id
