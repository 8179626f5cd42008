-- How far the speedups over eager on H200s are from those on H100s, by precision and clock: kernels with a
-- quiet session on both. ratio is the speedup on the H200 over that on the H100. Trivial tasks and kernels that
-- compute another function are left out. Kernels released for any GPU.
WITH measured AS (
    FROM pooled_speedups AS speeds
    ANTI JOIN nonequivalent
        ON nonequivalent.kernel_id = speeds.kernel_id AND nonequivalent.task_id = speeds.task_id
    WHERE baseline = 'eager' AND speeds.task_id NOT IN (FROM weak_tasks)
)
SELECT
    h200."precision",
    h200.clock,
    count(*) AS kernels,
    round(median(h200.speedup / h100.speedup), 3) AS median_ratio,
    round(quantile_cont(h200.speedup / h100.speedup, 0.1), 3) AS p10,
    round(quantile_cont(h200.speedup / h100.speedup, 0.9), 3) AS p90
FROM measured AS h200
INNER JOIN measured AS h100
    ON
        h100.kernel_id = h200.kernel_id AND h100.task_id = h200.task_id
        AND h100."precision" = h200."precision" AND h100.clock = h200.clock
WHERE h200.device = 'H200' AND h100.device = 'H100'
GROUP BY h200."precision", h200.clock
ORDER BY "precision" DESC, h200.clock
