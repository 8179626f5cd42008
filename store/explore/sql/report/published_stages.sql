-- Stage table of CUDA-L1
-- The paper's Table 5 on an A100, then the policies of this lake that belong to a stage of
-- training. The paper's figures are stated and ours are measured. The paper states no n, median or
-- geometric mean.
-- Empty: The published figures are not in this lake: store import published.
SELECT
    stated_by, stages, p50, p50_low, p50_high, mean, device, policy, suite, tasks, success, faster,
    n, geomean, max, mean_missing_as_1
FROM published_stages
WHERE EXISTS (SELECT stated_by FROM published_stages WHERE stated_by = 'paper')
ORDER BY place, suite, device, policy
LIMIT 200
