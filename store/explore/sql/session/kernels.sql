-- Kernels that it wrote
-- Attempts of the session in their order, each with its verdict and its newest speedup over eager.
-- A kernel that computes another function has no speedup here.
WITH judged AS (
    SELECT
        kernel_id, task_id,
        max_by(status, {'failed': NOT correct, 'at': last_judged_at}) AS status
    FROM outcomes
    WHERE kernel_id IN (SELECT kernel_id FROM generations WHERE trajectory_id = $session)
    GROUP BY kernel_id, task_id
),
timed AS (
    SELECT
        kernel_id, task_id,
        max_by(
            {'speedup': speedup, 'low': speedup_low, 'high': speedup_high, 'device': device},
            {'ms': measured_at, 'session': session_id}
        ) AS newest
    FROM kernel_speedups
    WHERE baseline = 'eager'
        AND equivalent
        AND kernel_id IN (SELECT kernel_id FROM generations WHERE trajectory_id = $session)
    GROUP BY kernel_id, task_id
)
SELECT
    left(generations.generation_id, 13) AS attempt,
    timed.newest.speedup AS speedup,
    timed.newest.low AS speedup_low,
    timed.newest.high AS speedup_high,
    coalesce(judged.status, 'not judged') AS status,
    generations.kernel_id, timed.newest.device AS device, steps.step,
    generations.turn, generations.generation_id
FROM generations
LEFT JOIN session_steps AS steps
    ON steps.generation_id = generations.generation_id AND steps.session_id = $session
LEFT JOIN judged
    ON judged.kernel_id = generations.kernel_id AND judged.task_id = generations.task_id
LEFT JOIN timed
    ON timed.kernel_id = generations.kernel_id AND timed.task_id = generations.task_id
WHERE generations.trajectory_id = $session
ORDER BY steps.step, generations.turn, generations.generation_id
