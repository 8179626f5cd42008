-- How fast it is
-- The pooled speedup over each baseline at the clock and precision that rank there, with its 95 %
-- interval. rank is the place among kernels of the task that are correct, equivalent and not
-- quarantined, by the lower end of the interval; a kernel without one ranks nowhere. shapes: at how
-- many other shapes the kernel is correct, and its worst speedup there.
-- Empty: No evaluator has judged this kernel yet. `evaluators run --kernel ID` judges it.
WITH judged AS (
    SELECT
        task_id, device,
        max({
            'failed': NOT correct, 'at': last_judged_at, 'status': status, 'reason': reason
        }) AS verdict
    FROM outcomes
    WHERE kernel_id = $kernel
    GROUP BY task_id, device
),
places AS (
    SELECT DISTINCT task_id, device, baseline, clock, "precision"
    FROM default_clocks
    WHERE task_id IN (SELECT task_id FROM judged)
),
pooled AS (
    SELECT speeds.*
    FROM pooled_speedups AS speeds
    SEMI JOIN places
        ON places.task_id = speeds.task_id AND places.device = speeds.device
            AND places.baseline = speeds.baseline AND places.clock = speeds.clock
            AND places."precision" = speeds."precision"
    WHERE speeds.task_id IN (SELECT task_id FROM judged)
),
ranked AS (
    SELECT
        pooled.kernel_id, pooled.task_id, pooled.workload_id, pooled.device, pooled.baseline,
        row_number() OVER (
            PARTITION BY pooled.task_id, pooled.workload_id, pooled.device, pooled.baseline
            ORDER BY pooled.speedup_low DESC, pooled.kernel_id
        ) AS "rank",
        count(*) OVER (
            PARTITION BY pooled.task_id, pooled.workload_id, pooled.device, pooled.baseline
        ) AS ranked
    FROM pooled
    ANTI JOIN quarantined ON quarantined.kernel_id = pooled.kernel_id
    ANTI JOIN nonequivalent
        ON nonequivalent.kernel_id = pooled.kernel_id AND nonequivalent.task_id = pooled.task_id
    ANTI JOIN unheld ON unheld.kernel_id = pooled.kernel_id AND unheld.task_id = pooled.task_id
    ANTI JOIN weak_tasks ON weak_tasks.task_id = pooled.task_id
)
SELECT
    judged.device, pooled.baseline, pooled.speedup, pooled.speedup_low, pooled.speedup_high,
    judged.verdict.status AS status, judged.verdict.reason AS reason, ranked."rank", ranked.ranked,
    shapes.shapes, pooled.kernel_ms, pooled.baseline_ms, pooled.clock, pooled."precision",
    pooled.sessions, pooled.n AS samples, task_names.task, judged.task_id
FROM judged
LEFT JOIN pooled
    ON pooled.kernel_id = $kernel AND pooled.task_id = judged.task_id
        AND pooled.device = judged.device
LEFT JOIN ranked
    ON ranked.kernel_id = $kernel AND ranked.task_id = judged.task_id
        AND ranked.device = judged.device AND ranked.baseline = pooled.baseline
        AND ranked.workload_id = pooled.workload_id
LEFT JOIN shapes
    ON shapes.kernel_id = $kernel AND shapes.task_id = judged.task_id
        AND shapes.device = judged.device
LEFT JOIN task_names ON task_names.task_id = judged.task_id
ORDER BY pooled.speedup IS NULL, judged.verdict.status <> 'correct', ranked."rank" IS NULL,
    judged.device DESC, pooled.baseline <> 'eager', pooled.baseline, pooled.workload_id
