-- Best so far
-- Geometric mean, over the tasks of the run, of the best speedup up to a step. A task counts as at
-- least 1.0, because the baseline exists. One line per baseline, one chart per device.
-- Empty: No kernel of the run has a quiet timing session and a step yet: evaluators run.
WITH changes AS (
    SELECT
        device, baseline, task_id, step,
        ln(greatest(speedup, 1)) - coalesce(
            lag(ln(greatest(speedup, 1))) OVER (
                PARTITION BY device, baseline, task_id ORDER BY step
            ), 0
        ) AS gain,
        CAST(previous_low IS NULL AS INTEGER) AS first
    FROM run_bests
    WHERE run_id = $run AND step IS NOT NULL
),
summed AS (
    SELECT device, baseline, step, sum(gain) AS gain, sum(first) AS first, count(*) AS improved
    FROM changes
    GROUP BY device, baseline, step
),
tried AS (
    SELECT count(DISTINCT task_id) AS tasks FROM generations WHERE run_id = $run
)
SELECT
    summed.device, summed.baseline, summed.step,
    exp(sum(summed.gain) OVER so_far / tried.tasks) AS geomean_at_least_1,
    sum(summed.first) OVER so_far::BIGINT AS "tasks with a speedup",
    tried.tasks, summed.improved
FROM summed CROSS JOIN tried
WINDOW so_far AS (PARTITION BY summed.device, summed.baseline ORDER BY summed.step)
ORDER BY summed.device, summed.baseline, summed.step
