-- Published, July 2025
-- The first version of the paper claims these means and maxima over eager PyTorch. The authors later
-- found that 82 of the 250 kernels worked on streams that the timer did not see.
-- Empty: The published figures are not in this lake; run: store import published
SELECT
    gpu,
    max(value) FILTER (WHERE metric = 'mean_speedup') AS mean,
    max(value) FILTER (WHERE metric = 'max_speedup') AS highest,
    max(value) FILTER (WHERE metric = 'improper_timing')::BIGINT AS improperly_timed,
    any_value("of") AS tasks,
    string_agg(
        DISTINCT source || ', ' || source_revision, '; '
        ORDER BY source || ', ' || source_revision
    ) AS source
FROM current_claims
WHERE policy_id = 'cuda-l1'
    AND (source_revision = 'arXiv 2507.14111v1' OR metric = 'improper_timing')
GROUP BY gpu
ORDER BY gpu
