-- Recomputed from the released rows
-- A mean depends on what a missing kernel counts as: left out, left out but for scores that have no
-- code, or 1.0. The published mean is given beside; median and geometric mean are of rows with code.
-- Of several imported revisions of the release the one imported last counts.
-- Empty: The release is not in this lake; run: store import cuda-l1 PATH
WITH scores AS (
    FROM claimed_speedups WHERE source = 'cuda-l1' AND baseline = 'eager'
),
suite AS (
    SELECT count(DISTINCT "name") AS tasks
    FROM task_labels WHERE suite = 'kernelbench' AND suite_revision = 'v0'
),
published AS (
    SELECT gpu, any_value(value) AS mean
    FROM current_claims
    WHERE metric = 'mean_speedup' AND baseline = 'eager' AND "level" IS NULL
        AND source = 'CUDA-L1 README' AND source_revision = '51e8356'
    GROUP BY gpu
)
SELECT
    gpu,
    any_value(source_revision) AS revision,
    any_value(published.mean) AS published,
    round(avg(speedup) FILTER (WHERE released), 2) AS mean_with_code,
    round(avg(speedup), 2) AS mean_scored,
    round((sum(speedup) + any_value(tasks) - count(*)) / any_value(tasks), 2) AS mean_missing_as_1,
    round(median(speedup) FILTER (WHERE released), 2) AS median,
    round(exp(avg(ln(speedup)) FILTER (WHERE released)), 2) AS geomean,
    count(*) FILTER (WHERE released) AS with_code,
    count(*) AS scored,
    any_value(tasks) AS tasks
FROM scores CROSS JOIN suite LEFT JOIN published USING (gpu)
GROUP BY gpu
ORDER BY gpu
