-- Key figures
-- Each figure links to the section that explains it.
-- Empty: The lake has no verdicts and no published figures yet: store import starter.
WITH judged AS (
    SELECT device, bool_and(correct) AS correct
    FROM outcomes
    GROUP BY kernel_id, task_id, workload_id, device
),
medians AS (
    SELECT
        suite || ' ' || suite_revision AS suite, device, baseline, p50, p50_low, p50_high, n,
        row_number() OVER (
            PARTITION BY suite, suite_revision, device ORDER BY p50, baseline
        ) AS place
    FROM leaderboard
    WHERE "level" IS NULL AND policy_id IS NULL AND n >= 3
),
claimed AS (
    SELECT
        "source", gpu, device,
        count(*) FILTER (WHERE exceeded IS NOT NULL) AS judged,
        count(*) FILTER (WHERE holds) AS holds,
        count(*) FILTER (WHERE weak) AS weak,
        count(*) FILTER (WHERE exceeded IS NULL AND NOT weak) AS another
    FROM claims_vs_measured
    WHERE baseline = 'eager'
    GROUP BY "source", gpu, device
    QUALIFY row_number() OVER (PARTITION BY "source", device ORDER BY judged DESC, gpu) = 1
),
figures AS (
    SELECT
        1 AS place, 'speedup' AS unit, p50 AS figure, p50_low AS low, p50_high AS high,
        format('median speedup over eager, {} tasks of {} on {}', n, suite, device) AS meaning,
        'leaderboards' AS section, n AS weight
    FROM medians
    WHERE baseline = 'eager'
    UNION ALL
    SELECT
        2, 'speedup', p50, p50_low, p50_high,
        format('over {}, the hardest baseline, {} tasks of {} on {}', baseline, n, suite, device),
        'leaderboards', n
    FROM medians
    WHERE place = 1 AND baseline <> 'eager'
    UNION ALL
    SELECT
        3, 'share', avg(correct::INTEGER), NULL, NULL,
        format('of {} judged kernels are correct on {}', count(*), device), 'overview', count(*)
    FROM judged
    GROUP BY device
    UNION ALL
    SELECT
        4, 'share', holds / judged, NULL, NULL,
        format(
            'of {} claims of {} for {} hold on {}, without {} of kernels that compute another '
            || 'function and {} on weak tasks',
            judged, "source", gpu, device, another, weak
        ),
        'claims', judged
    FROM claimed
    WHERE judged > 0
    UNION ALL
    SELECT
        5, 'count', count(*), NULL, NULL, 'correct kernels compute another function than the task',
        'overview', 1
    FROM nonequivalent
    HAVING count(*) > 0
    UNION ALL
    SELECT
        6, 'count', count(*), NULL, NULL,
        format('kernels under suspicion, {} confirmed', count(*) FILTER (WHERE quarantined)),
        'findings', 1
    FROM suspects
    WHERE standing <> 'dismissed'
    HAVING count(*) > 0
)
SELECT unit, figure, low, high, meaning, section
FROM figures
QUALIFY row_number() OVER (PARTITION BY place ORDER BY weight DESC, meaning) <= 2
ORDER BY place, weight DESC, meaning
