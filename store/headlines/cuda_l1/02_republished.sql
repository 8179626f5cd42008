-- Published again, after the timer was corrected
-- The same method, measured again: the README's means, and the medians of the paper's last abstract.
-- Empty: The published figures are not in this lake; run: store import published
SELECT
    gpu,
    max(value) FILTER (WHERE metric = 'mean_speedup') AS mean,
    max(value) FILTER (WHERE metric = 'max_speedup') AS highest,
    max(value) FILTER (WHERE metric = 'p50_speedup') AS median,
    max(value) FILTER (WHERE metric = 'faster_than_1.01')::BIGINT AS faster,
    max("of") AS tasks,
    string_agg(
        DISTINCT source || ', ' || source_revision, '; '
        ORDER BY source || ', ' || source_revision
    ) AS source
FROM current_claims
WHERE policy_id = 'cuda-l1'
    AND baseline = 'eager'
    AND "level" IS NULL
    AND (source_revision = '51e8356' OR source_revision = 'arXiv 2507.14111v8')
    AND metric <> 'speedup'
GROUP BY gpu
ORDER BY gpu
