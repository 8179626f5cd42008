-- Tags
-- Names of snapshots. Compare two of them under Compare.
SELECT
    name AS tag, arg_max(snapshot_id, (created_at, tag_id)) AS snapshot_id,
    max(created_at) AS named_at, arg_max(note, (created_at, tag_id)) AS note
FROM tags
GROUP BY name
HAVING arg_max(coalesce(snapshot_id, -1), (created_at, tag_id)) >= 0
ORDER BY named_at DESC, tag
