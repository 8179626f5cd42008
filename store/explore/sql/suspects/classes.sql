-- What detectors found
-- One row per class of finding, over kernels. A finding is open until somebody decides on it. A
-- finding with a confidence below 0.5 is a tag that honest kernels carry too.
-- Empty: No detector has found anything: evaluators audit searches every kernel.
SELECT
    class,
    string_agg(DISTINCT detector, ', ' ORDER BY detector) AS detectors,
    count(DISTINCT kernel_id) AS kernels,
    count(DISTINCT kernel_id) FILTER (WHERE decision = 'confirmed') AS confirmed,
    count(DISTINCT kernel_id) FILTER (WHERE decision = 'dismissed') AS dismissed,
    count(DISTINCT kernel_id) FILTER (WHERE decision IS NULL AND coalesce(confidence, 1) >= 0.5)
        AS "open",
    count(DISTINCT kernel_id) FILTER (WHERE decision IS NULL AND confidence < 0.5) AS "tags alone",
    count(*) AS findings, avg(confidence) AS share_mean_confidence
FROM finding_standings
GROUP BY class
ORDER BY confirmed DESC, "open" DESC, kernels DESC, class
