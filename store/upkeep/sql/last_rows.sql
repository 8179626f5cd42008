-- When the attached lake last stored rows, in seconds since 1970; maintenance stores none.
SELECT epoch(max(snapshot_time)) AS seconds
FROM ducklake_snapshots('lake')
WHERE commit_message IS DISTINCT FROM 'maintenance'
