-- Tags
-- Names of snapshots. Compare two of them under Compare.
SELECT "name" AS tag, snapshot_id, since AS named_at, note
FROM current_tags
ORDER BY named_at DESC, tag
