-- One row per committed bundle with the snapshot of its commit, newest first.
-- rows counts the rows that the bundle added to all tables. A group commit has several bundles with
-- the same snapshot.
--
-- snapshot_id: snapshot that the bundle's commit made
-- author: command or member that wrote the bundle
-- message: description of the bundle
-- rows: number of rows that the bundle added
SELECT
    snapshot_id,
    committed_at,
    author,
    message,
    list_sum(map_values(CAST(CAST(row_counts AS JSON) AS MAP(VARCHAR, BIGINT))))::BIGINT AS "rows",
    row_counts,
    bundle_id
FROM lake.main.ingest_log
ORDER BY snapshot_id DESC, committed_at DESC, bundle_id
