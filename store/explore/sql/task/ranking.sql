-- Kernels by speedup
-- Every correct kernel with a quiet timing session: its newest speedup with its interval. Another
-- color marks kernels that take part in no ranking.
WITH ranked AS MATERIALIZED (
    SELECT *
    FROM kernel_speedups
    WHERE task_id = $task
        AND device = $device
        AND baseline = $baseline
        AND clock = $clock
        AND "precision" = $precision
),
written AS (
    SELECT kernel_id, policy
    FROM authors
    WHERE task_id = $task
),
described AS (
    SELECT
        kernel_id,
        max({
            'version': extractor_version, 'language': "language", 'lines': code_lines,
            'techniques': techniques
        }) AS newest
    FROM kernel_features
    SEMI JOIN ranked ON ranked.kernel_id = kernel_features.kernel_id
    GROUP BY kernel_id
)
SELECT
    ranked.kernel_id, ranked.speedup, ranked.speedup_low, ranked.speedup_high,
    row_number() OVER (ORDER BY ranked.speedup_low DESC, ranked.kernel_id) AS place,
    ranked.kernel_ms, ranked.baseline_ms, ranked.n AS samples, ranked.clock,
    written.policy, described.newest."language" AS "language", described.newest.lines AS lines,
    array_to_string(described.newest.techniques, ', ') AS techniques,
    CASE
        WHEN ranked.quarantined THEN 'quarantined'
        WHEN NOT ranked.equivalent THEN 'another function'
    END AS left_out,
    ranked.measured_at
FROM ranked
LEFT JOIN written ON written.kernel_id = ranked.kernel_id
LEFT JOIN described ON described.kernel_id = ranked.kernel_id
WHERE true
    AND written.policy = $policy
    AND described.newest."language" = $language
    AND described.newest.lines <= $lines
ORDER BY ranked.speedup_low DESC, ranked.kernel_id
