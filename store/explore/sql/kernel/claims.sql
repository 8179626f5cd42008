-- Claims
-- What others published about it.
SELECT
    gpu, coalesce(speedup, "value") AS figure, baseline, metric, "source", source_revision,
    published_on
FROM current_claims
WHERE kernel_id = $kernel
ORDER BY figure DESC, "source", gpu, baseline
