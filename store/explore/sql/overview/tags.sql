-- Names of snapshots
-- store report --at NAME writes the report of one of them, and Compare shows what lies between two.
-- A name is given later than its snapshot, so run this query without --at.
-- Empty: No snapshot has a name yet: store tag add NAME.
SELECT "name" AS tag, snapshot_id, note, since AS named_at
FROM current_tags
ORDER BY snapshot_id DESC, tag
