-- One row per name in use: the snapshot that it names, since when, and why.
SELECT
    name,
    arg_max(coalesce(snapshot_id, -1), (created_at, tag_id)) AS snapshot,
    max(created_at) AS since,
    arg_max(author, (created_at, tag_id)) AS author,
    arg_max(note, (created_at, tag_id)) AS note
FROM tags
GROUP BY name
HAVING snapshot >= 0
ORDER BY name
