-- How wide is the range that the knobs of generated tasks open? One row per task and device: measured
-- speedups over eager of correct kernels with knobs, and the ratio of the best to the worst.
SELECT
    task_names.family,
    task_names.title,
    speeds.device,
    count(DISTINCT speeds.kernel_id) AS kernels,
    round(min(speeds.speedup), 3) AS worst,
    round(median(speeds.speedup), 3) AS median,
    round(max(speeds.speedup), 3) AS best,
    round(max(speeds.speedup) / min(speeds.speedup), 2) AS ratio,
    arg_max(kernels.path, speeds.speedup) AS best_path
FROM scored_speedups AS speeds
INNER JOIN kernels ON kernels.kernel_id = speeds.kernel_id
INNER JOIN task_names ON task_names.task_id = speeds.task_id
WHERE speeds.baseline = 'eager' AND starts_with(task_names.family, 'tuned_')
GROUP BY task_names.family, task_names.title, speeds.device, speeds.task_id
ORDER BY task_names.family, task_names.title, speeds.device, speeds.task_id
