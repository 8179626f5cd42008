-- Findings by class
-- A class below 50 % confidence is a tag that honest kernels carry too.
SELECT
    class, count(*) AS findings, count(DISTINCT kernel_id) AS kernels,
    count(*) FILTER (WHERE decision IS NULL) AS "open",
    count(*) FILTER (WHERE decision = 'confirmed') AS confirmed,
    count(*) FILTER (WHERE decision = 'dismissed') AS dismissed,
    avg(confidence) AS share_mean_confidence
FROM finding_standings
GROUP BY class
ORDER BY findings DESC, class
