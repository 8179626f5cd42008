-- One row per snapshot: who made it, why, and the tags that name it.
SELECT
    snapshots.snapshot_id AS snapshot,
    snapshots.snapshot_time AS committed_at,
    coalesce(snapshots.author, 'lake') AS author,
    coalesce(snapshots.commit_message, 'new lake') AS message,
    string_agg(current_tags.name, ', ' ORDER BY current_tags.name) AS tags
FROM ducklake_snapshots('lake') AS snapshots
LEFT JOIN current_tags USING (snapshot_id)
GROUP BY ALL
ORDER BY snapshot DESC
