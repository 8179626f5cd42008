-- Kernels with two timed verdicts on the same GPU model, here from two machines: how far their speedups over
-- eager are apart, by device, precision and clock. Quiet sessions of kernels released for the H100; trivial tasks
-- and kernels that compute another function are left out. ratio is the larger speedup over the smaller one;
-- apart counts pairs whose intervals do not overlap.
WITH sessions AS (
    SELECT
        device, speeds.kernel_id, speeds.task_id, "precision", clock, speedup, speedup_low, speedup_high,
        row_number() OVER (
            PARTITION BY device, speeds.kernel_id, speeds.task_id, "precision", clock
            ORDER BY measured_at, session_id
        ) AS place,
        evaluation_id
    FROM speedups AS speeds
    ANTI JOIN nonequivalent
        ON nonequivalent.kernel_id = speeds.kernel_id AND nonequivalent.task_id = speeds.task_id
    WHERE
        baseline = 'eager' AND NOT disturbed AND NOT unresolved AND speeds.task_id NOT IN (FROM weak_tasks)
        AND speeds.kernel_id IN (SELECT kernel_id FROM claimed_speedups WHERE gpu = 'H100' AND released)
)
SELECT
    one.device,
    one."precision",
    one.clock,
    count(*) AS pairs,
    count(*) FILTER (
        WHERE one.speedup_high < other.speedup_low OR other.speedup_high < one.speedup_low
    ) AS apart,
    round(median(greatest(one.speedup / other.speedup, other.speedup / one.speedup)), 4) AS median_ratio,
    round(max(greatest(one.speedup / other.speedup, other.speedup / one.speedup)), 3) AS largest_ratio
FROM sessions AS one
INNER JOIN sessions AS other
    ON
        one.kernel_id = other.kernel_id AND one.task_id = other.task_id AND one.device = other.device
        AND one."precision" = other."precision" AND one.clock = other.clock
        AND one.evaluation_id <> other.evaluation_id AND one.place < other.place
GROUP BY one.device, one."precision", one.clock
ORDER BY one.device, "precision", one.clock
