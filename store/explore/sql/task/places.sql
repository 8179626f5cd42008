-- Devices and baselines with timings of the task, with the clock and precision that rank there
SELECT DISTINCT device, baseline, clock, "precision"
FROM default_clocks
WHERE task_id = $task
ORDER BY device, baseline <> 'eager', baseline, clock, "precision"
