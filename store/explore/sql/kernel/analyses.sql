-- Analyses
-- What profilers, models and people wrote about its performance, newest first.
SELECT
    kind, author, bottleneck, array_to_string(techniques, ', ') AS techniques, body,
    created_at AS written_at
FROM analyses
WHERE kernel_id = $kernel
ORDER BY written_at DESC, analysis_id
