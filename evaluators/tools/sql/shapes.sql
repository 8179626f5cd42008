-- What a kernel does at other shapes of its task.
SELECT shape, outcome, reason, round(speedup, 3) AS speedup, device
FROM shape_verdicts
WHERE kernel_id = $kernel_id AND task_id = $task_id
ORDER BY device, shape
