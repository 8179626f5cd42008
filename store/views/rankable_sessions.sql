-- One row of speedups that may rank: kernel correct, session not disturbed, clock the one that ranks.
-- Of two sessions of an evaluation that confirm a win, the lower one is here. ranked says whether the
-- kernel takes part in rankings: it is neither quarantined nor nonequivalent.
SELECT
    speedups.*,
    quarantined.kernel_id IS NOT NULL AS quarantined,
    nonequivalent.kernel_id IS NULL AS equivalent,
    quarantined.kernel_id IS NULL AND nonequivalent.kernel_id IS NULL
    AND unheld.kernel_id IS NULL AS ranked
FROM speedups
INNER JOIN default_clocks
    ON
        default_clocks.task_id = speedups.task_id
        AND default_clocks.workload_id = speedups.workload_id
        AND default_clocks.device = speedups.device
        AND default_clocks.baseline = speedups.baseline
        AND default_clocks.clock = speedups.clock
        AND default_clocks."precision" = speedups."precision"
LEFT JOIN quarantined ON quarantined.kernel_id = speedups.kernel_id
LEFT JOIN nonequivalent
    ON
        nonequivalent.kernel_id = speedups.kernel_id
        AND nonequivalent.task_id = speedups.task_id
LEFT JOIN unheld
    ON
        unheld.kernel_id = speedups.kernel_id
        AND unheld.task_id = speedups.task_id
WHERE speedups.correct AND NOT speedups.disturbed AND NOT speedups.unresolved
QUALIFY NOT speedups.confirmed OR row_number() OVER (
    PARTITION BY
        speedups.evaluation_id, speedups.kernel_id, speedups.task_id, speedups.baseline,
        speedups.clock, speedups.confirmed
    ORDER BY speedups.speedup, speedups.session_id
) = 1
