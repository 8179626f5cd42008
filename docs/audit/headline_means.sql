-- The published means over eager, recomputed: with code only, with every score, and missing as 1.0.
WITH scores AS (
    FROM claimed_speedups WHERE source = 'cuda-l1' AND baseline = 'eager'
),
suite AS (
    SELECT count(DISTINCT name) AS tasks
    FROM task_labels WHERE suite = 'kernelbench' AND suite_revision = 'v0'
),
published AS (
    SELECT gpu, value FROM current_claims
    WHERE metric = 'mean_speedup' AND baseline = 'eager' AND level IS NULL
        -- The README of July 2025 has other means.
        AND source = 'CUDA-L1 README' AND source_revision = '51e8356'
)
SELECT
    gpu,
    count(*) FILTER (WHERE released) AS with_code,
    round(avg(speedup) FILTER (WHERE released), 3) AS mean_with_code,
    count(*) AS scored,
    round(avg(speedup), 3) AS mean_scored,
    round((sum(speedup) + any_value(tasks) - count(*)) / any_value(tasks), 3) AS mean_missing_as_1,
    any_value(published.value) AS published,
    round(exp(avg(ln(speedup)) FILTER (WHERE released)), 3) AS geomean_with_code,
    round(median(speedup) FILTER (WHERE released), 3) AS median_with_code,
    max(speedup) AS highest,
    round(list_sum(list_slice(list_reverse_sort(list(speedup)), 1, 5)) / sum(speedup), 2)
        AS top_5_share
FROM scores CROSS JOIN suite LEFT JOIN published USING (gpu)
GROUP BY gpu
ORDER BY gpu
