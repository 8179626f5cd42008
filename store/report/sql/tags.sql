-- Names of snapshots
-- store report --at NAME writes the report of one of them.
-- Empty: No snapshot has a name yet: store tag add NAME.
SELECT "name" AS tag, snapshot_id AS snapshot, note, created_at AS since
FROM tags
QUALIFY row_number() OVER (PARTITION BY "name" ORDER BY created_at DESC, tag_id DESC) = 1
    AND snapshot_id IS NOT NULL
ORDER BY snapshot_id DESC, "name"
LIMIT 40
