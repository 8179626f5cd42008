-- One row per tag in use: the snapshot that it names, since when, by whom and why.
-- The latest row of a name counts. A name whose latest row has no snapshot is removed.
--
-- name: name of the tag
-- snapshot_id: snapshot that it names
-- since: when the tag got this snapshot
-- author: who tagged it; NULL if unknown
SELECT "name", snapshot_id, created_at AS since, author, note
FROM tags
QUALIFY row_number() OVER (PARTITION BY "name" ORDER BY created_at DESC, tag_id DESC) = 1
    AND snapshot_id IS NOT NULL
ORDER BY "name"
