-- One row per kernel whose best speedup over eager is surprising, and that $detector has not seen
-- in an audit of this lake.
-- Surprising is above 3x, or above twice the best other kernel of the task; claims count as well as
-- measurements, each against its own kind.
WITH speeds AS (
    SELECT kernel_id, task_id, 'measured' AS evidence, max(speedup) AS speedup
    FROM kernel_speedups
    WHERE baseline = 'eager'
    GROUP BY kernel_id, task_id
    UNION ALL
    SELECT kernel_id, task_id, 'claimed', max(speedup)
    FROM claimed_speedups
    WHERE baseline = 'eager' AND kernel_id IS NOT NULL
    GROUP BY kernel_id, task_id
),
ranked AS (
    SELECT
        *,
        max(speedup) OVER task AS best,
        nth_value(speedup, 2) OVER (
            PARTITION BY task_id, evidence ORDER BY speedup DESC, kernel_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
        ) AS second,
        row_number() OVER (PARTITION BY task_id, evidence ORDER BY speedup DESC, kernel_id) AS rank
    FROM speeds
    WINDOW task AS (PARTITION BY task_id, evidence)
),
wins AS (
    SELECT kernel_id, task_id, evidence, speedup, CASE WHEN rank = 1 THEN second ELSE best END AS other
    FROM ranked
    WHERE speedup > 3 OR speedup > 2 * CASE WHEN rank = 1 THEN second ELSE best END
    QUALIFY row_number() OVER (
        PARTITION BY kernel_id ORDER BY evidence DESC, speedup DESC, task_id
    ) = 1
),
seen AS (
    SELECT scans.kernel_id
    FROM scans
    INNER JOIN runs ON runs.run_id = scans.run_id
    WHERE
        runs.kind = 'audit'
        AND runs.origin IS NULL
        AND list_contains(from_json(runs.config ->> '$.detectors', '["VARCHAR"]'), $detector)
)
SELECT wins.*, kernels.* EXCLUDE (kernel_id), tasks.code AS reference
FROM wins
INNER JOIN kernels ON kernels.kernel_id = wins.kernel_id
INNER JOIN tasks ON tasks.task_id = wins.task_id
WHERE wins.kernel_id NOT IN (SELECT kernel_id FROM seen)
ORDER BY wins.speedup DESC, wins.kernel_id
