-- What others published about it, or with it as the baseline.
--
-- key columns: gpu, baseline, figure, source
SELECT
    gpu,
    baseline,
    metric,
    coalesce(speedup, value) AS figure,
    CASE WHEN kernel_id = $kernel_id THEN 'kernel' ELSE 'baseline' END AS role,
    source,
    source_revision
FROM current_claims AS claims
WHERE kernel_id = $kernel_id OR baseline_kernel_id = $kernel_id
ORDER BY ALL
