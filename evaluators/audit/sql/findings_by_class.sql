-- One row per class and detector: how many kernels carry it, how many of them in this run first.
SELECT
    findings.class,
    findings.detector || '@' || findings.detector_version AS detector,
    count(DISTINCT kernel_id) AS kernels,
    count(*) AS findings,
    count(*) FILTER (WHERE run_id = $run_id) AS in_this_run,
    count(*) FILTER (WHERE confidence >= $look_from) AS to_look_at,
    max(confidence) AS confidence
FROM findings
WHERE detector IN (SELECT unnest($detectors::VARCHAR[]))
GROUP BY ALL
ORDER BY to_look_at DESC, findings DESC, class, detector
