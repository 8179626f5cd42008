-- One row per data file that some snapshot reads: where it is, since when and until when, its size.
SELECT
    t.table_name,
    CASE WHEN f.path_is_relative
        THEN CASE WHEN s.path_is_relative THEN s.path ELSE '' END || t.path || f.path
        ELSE f.path
    END AS path,
    f.begin_snapshot AS since,
    f.end_snapshot AS until,
    f.file_size_bytes AS bytes,
    f.record_count AS rows
FROM __ducklake_metadata_lake.ducklake_data_file AS f
JOIN __ducklake_metadata_lake.ducklake_table AS t USING (table_id)
JOIN __ducklake_metadata_lake.ducklake_schema AS s USING (schema_id)
ORDER BY t.table_name, f.data_file_id
