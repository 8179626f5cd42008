-- One row per table that has rows: its columns at a snapshot, and its rows and bytes at the newest.
-- An older snapshot has no more rows. DuckDB's own lists of tables and columns say the same, and take
-- ten times as long, because they describe every table of the catalog's database too.
SELECT
    tables.table_name,
    list(columns.column_name) AS names,
    any_value(stats.record_count) AS row_count,
    any_value(stats.file_size_bytes) AS bytes
FROM __ducklake_metadata_lake.ducklake_table AS tables
JOIN __ducklake_metadata_lake.ducklake_table_stats AS stats USING (table_id)
JOIN __ducklake_metadata_lake.ducklake_column AS columns USING (table_id)
WHERE stats.record_count > 0 AND columns.parent_column IS NULL AND columns.begin_snapshot <= $snapshot
    AND coalesce(columns.end_snapshot > $snapshot, true)
GROUP BY tables.table_name
