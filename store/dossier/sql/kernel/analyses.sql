-- What profilers, models and people wrote about its performance, newest first.
--
-- key columns: kind, author, bottleneck
SELECT kind, author, bottleneck, techniques, body, created_at AS written_at
FROM analyses
WHERE kernel_id = $kernel_id
ORDER BY written_at DESC, analysis_id
