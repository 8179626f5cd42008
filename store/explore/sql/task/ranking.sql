-- Kernels by speedup
-- Every correct kernel with a quiet timing session: its pooled speedup with its interval. Kernels
-- that compute another function are left out. Another color marks quarantined kernels, which take
-- part in no ranking. shapes: at how many other shapes it is correct, and its worst speedup there.
WITH ranked AS MATERIALIZED (
    SELECT speeds.*, quarantined.kernel_id IS NOT NULL AS quarantined
    FROM pooled_speedups AS speeds
    LEFT JOIN quarantined ON quarantined.kernel_id = speeds.kernel_id
    ANTI JOIN nonequivalent
        ON nonequivalent.kernel_id = speeds.kernel_id AND nonequivalent.task_id = speeds.task_id
    ANTI JOIN unheld
        ON unheld.kernel_id = speeds.kernel_id AND unheld.task_id = speeds.task_id
    WHERE speeds.task_id = $task
        AND speeds.device = $device
        AND speeds.baseline = $baseline
        AND speeds.clock = $clock
        AND speeds."precision" = $precision
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
    ranked.kernel_ms, ranked.baseline_ms, ranked.threads, ranked.n AS samples,
    ranked.sessions, ranked.clock, shapes.shapes,
    written.policy, described.newest."language" AS "language", described.newest.lines AS lines,
    array_to_string(described.newest.techniques, ', ') AS techniques,
    CASE WHEN ranked.quarantined THEN 'quarantined' END AS left_out,
    ranked.measured_at
FROM ranked
LEFT JOIN shapes
    ON shapes.kernel_id = ranked.kernel_id AND shapes.task_id = $task AND shapes.device = $device
LEFT JOIN written ON written.kernel_id = ranked.kernel_id
LEFT JOIN described ON described.kernel_id = ranked.kernel_id
WHERE true
    AND written.policy = $policy
    AND described.newest."language" = $language
    AND described.newest.lines <= $lines
ORDER BY ranked.speedup_low DESC, ranked.kernel_id
