-- Step by step
-- Attempts of the run by step with their verdicts and rewards, newest first. A step links to its
-- attempts below.
WITH judged AS (
    SELECT kernel_id, task_id, bool_and(correct) AS correct
    FROM outcomes
    WHERE (kernel_id, task_id) IN (SELECT (kernel_id, task_id) FROM generations WHERE run_id = $run)
    GROUP BY kernel_id, task_id
)
SELECT
    steps.step, count(*) AS attempts, count(steps.kernel_id) AS with_kernel,
    count(*) FILTER (WHERE judged.correct) AS correct, count(judged.correct) AS judged,
    count(DISTINCT steps.task_id) AS tasks, avg(rewards.raw) AS reward,
    min(steps.created_at) AS began
FROM run_steps AS steps
LEFT JOIN judged ON judged.kernel_id = steps.kernel_id AND judged.task_id = steps.task_id
LEFT JOIN rewards ON rewards.generation_id = steps.generation_id AND rewards.run_id = steps.run_id
WHERE steps.run_id = $run
GROUP BY steps.step
ORDER BY steps.step DESC NULLS LAST
