-- Scores that entered the published means although no code was released for them.
SELECT
    gpu,
    count(*) AS orphan_scores,
    round(max(speedup), 2) AS highest,
    round(avg(speedup), 2) AS mean,
    arg_max(task, speedup) AS highest_task
FROM claimed_speedups
WHERE source = 'cuda-l1' AND baseline = 'eager' AND NOT released
GROUP BY gpu
ORDER BY gpu
