-- The same by precision and clock
-- Claims for the GPU that this lake measured on, under each precision and by each clock:
-- gpu is device work alone, latency one call on an idle GPU, throughput calls back to back. weak
-- counts kernels of trivial tasks, which an answer without their inputs passes, and
-- another_function other correct kernels that compute another function than the task. quiet counts
-- kernels with a session that is not disturbed, without both; the speedups are over eager, of those
-- alone. The whole interval of an exceeded claim lies above 1.1 of it, and that of a slower kernel
-- below 0.9 of the claim. faster counts kernels that are faster than eager.
-- Empty: Nothing measured yet: no evaluator has judged a released kernel on the GPU that its claim
-- is for
WITH claims AS (
    FROM claimed_speedups WHERE source = 'cuda-l1' AND baseline = 'eager' AND released
),
judged AS (
    SELECT kernel_id, task_id, device, "precision", bool_and(correct) AS correct
    FROM verdicts
    GROUP BY kernel_id, task_id, device, "precision"
),
clocks AS (SELECT DISTINCT device, clock FROM pooled_speedups),
measured AS (
    SELECT *
    FROM pooled_speedups AS speeds
    ANTI JOIN weak_tasks ON weak_tasks.task_id = speeds.task_id
    ANTI JOIN nonequivalent
        ON nonequivalent.kernel_id = speeds.kernel_id AND nonequivalent.task_id = speeds.task_id
    WHERE baseline = 'eager'
)
SELECT
    judged.device,
    judged."precision",
    clocks.clock,
    count(*) AS judged,
    count(*) FILTER (WHERE judged.correct) AS correct,
    count(weak_tasks.task_id) AS weak,
    count(*) FILTER (
        WHERE judged.correct AND weak_tasks.task_id IS NULL AND nonequivalent.kernel_id IS NOT NULL
    ) AS another_function,
    count(measured.speedup) AS quiet,
    count(*) FILTER (WHERE measured.speedup_low > claims.speedup * 1.1) AS exceeded,
    count(*) FILTER (WHERE measured.speedup_high < claims.speedup * 0.9) AS slower,
    round(median(claims.speedup) FILTER (WHERE measured.speedup IS NOT NULL), 2) AS median_claimed,
    round(median(measured.speedup), 2) AS median_measured,
    round(exp(avg(ln(measured.speedup))), 2) AS geomean_measured,
    count(*) FILTER (WHERE measured.speedup_low > 1) AS faster
FROM claims
INNER JOIN judged
    ON
        judged.kernel_id = claims.kernel_id AND judged.task_id = claims.task_id
        AND lower(judged.device) = lower(claims.gpu)
INNER JOIN clocks ON clocks.device = judged.device
LEFT JOIN weak_tasks ON weak_tasks.task_id = judged.task_id
LEFT JOIN nonequivalent
    ON nonequivalent.kernel_id = judged.kernel_id AND nonequivalent.task_id = judged.task_id
LEFT JOIN measured
    ON
        measured.kernel_id = claims.kernel_id AND measured.task_id = claims.task_id
        AND measured.device = judged.device AND measured."precision" = judged."precision"
        AND measured.clock = clocks.clock AND judged.correct
GROUP BY judged.device, judged."precision", clocks.clock
ORDER BY judged.device, judged."precision" DESC, clocks.clock
