-- The race
-- Every attempt at the task in the order in which it was written: points are speedups of correct,
-- equivalent kernels that are not quarantined, lines are the best so far of each author, and marks
-- at the foot are attempts without such a kernel. Attempts that wait for a verdict are not drawn. A
-- long race shows every improvement and a part of the other attempts.
-- Empty: Nobody has written a kernel for this task yet.
WITH ranked AS (
    SELECT speeds.kernel_id, speeds.speedup, speeds.speedup_low, speeds.speedup_high
    FROM pooled_speedups AS speeds
    ANTI JOIN quarantined ON quarantined.kernel_id = speeds.kernel_id
    ANTI JOIN nonequivalent
        ON nonequivalent.kernel_id = speeds.kernel_id AND nonequivalent.task_id = speeds.task_id
    ANTI JOIN unheld
        ON unheld.kernel_id = speeds.kernel_id AND unheld.task_id = speeds.task_id
    WHERE speeds.task_id = $task
        AND speeds.device = $device
        AND speeds.baseline = $baseline
        AND speeds.clock = $clock
        AND speeds."precision" = $precision
    QUALIFY row_number() OVER (PARTITION BY speeds.kernel_id ORDER BY speeds.speedup_low DESC) = 1
),
judged AS (
    SELECT
        kernel_id, max({'failed': NOT correct, 'at': last_judged_at, 'status': status}) AS verdict
    FROM outcomes
    WHERE task_id = $task
        AND device = $device
    GROUP BY kernel_id
),
attempts AS (
    SELECT
        row_number() OVER (ORDER BY tries.created_at, tries.generation_id) AS attempt,
        count(*) OVER () AS attempts,
        coalesce(policies."name", 'unknown') AS policy,
        CASE
            WHEN tries.kernel_id IS NULL THEN 'no kernel'
            ELSE coalesce(judged.verdict.status, 'not judged')
        END AS status,
        ranked.speedup, ranked.speedup_low, ranked.speedup_high, tries.kernel_id, tries.created_at
    FROM generations AS tries
    LEFT JOIN policies ON policies.policy_id = tries.policy_id
    LEFT JOIN judged ON judged.kernel_id = tries.kernel_id
    LEFT JOIN ranked ON ranked.kernel_id = tries.kernel_id
    WHERE tries.task_id = $task
),
best AS (
    SELECT
        *,
        coalesce(speedup_low > max(speedup_low) OVER earlier, speedup IS NOT NULL) AS improves,
        count(*) FILTER (WHERE status = 'correct') OVER ()::BIGINT AS correct
    FROM attempts
    WINDOW earlier AS (
        PARTITION BY policy ORDER BY attempt ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
)
SELECT
    attempt, policy, status, speedup, speedup_low, speedup_high, improves, kernel_id,
    created_at AS written_at, attempts, correct
FROM best
WHERE improves OR attempt % (attempts // 300 + 1) = 0
ORDER BY attempt
