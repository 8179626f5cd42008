-- One row per name in use: the snapshot that it names, since when, and why.
SELECT "name", snapshot_id AS snapshot, since, author, note
FROM current_tags
ORDER BY "name"
