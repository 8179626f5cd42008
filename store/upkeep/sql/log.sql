-- One row per snapshot: who made it, why, what changed, and the tags that name it.
WITH tagged AS (
    SELECT name, arg_max(snapshot_id, (created_at, tag_id)) AS snapshot_id
    FROM (SELECT * REPLACE (coalesce(snapshot_id, -1) AS snapshot_id) FROM tags)
    GROUP BY name
)
SELECT
    snapshots.snapshot_id AS snapshot,
    snapshots.snapshot_time AS committed_at,
    coalesce(snapshots.author, 'lake') AS author,
    coalesce(snapshots.commit_message, 'new lake') AS message,
    string_agg(tagged.name, ', ' ORDER BY tagged.name) AS tags,
    snapshots.commit_extra_info AS extra
FROM ducklake_snapshots('lake') AS snapshots
LEFT JOIN tagged USING (snapshot_id)
GROUP BY ALL
ORDER BY snapshot DESC
