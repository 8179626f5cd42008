-- The stages, as published and in this lake
-- The paper's Table 5 on an A100, then the policies of this lake that belong to a stage of training.
-- Theirs are stated, ours are measured; n, median and geometric mean are known of ours alone.
-- Empty: The published figures are not in this lake; run: store import published
SELECT
    stated_by, stages, policy, suite, device, tasks, success, faster, n,
    round(p50, 2) AS median,
    round(geomean, 2) AS geomean,
    round(mean, 2) AS mean,
    round(mean_missing_as_1, 2) AS mean_missing_as_1,
    max
FROM published_stages
WHERE EXISTS (SELECT stated_by FROM published_stages WHERE stated_by = 'paper' OR n IS NOT NULL)
ORDER BY place, suite, device, policy
