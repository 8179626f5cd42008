-- One row per table that has rows: its columns, and its Parquet files or its table of inlined rows
-- where these alone hold it.
-- DuckLake looks up files and statistics in its catalog for every scan, which takes longer than a
-- point lookup itself. A snapshot never changes, so the files of its newest state can be named
-- once: they are the table if they hold as many rows as it has (none are inlined or of a later
-- snapshot) and none is older than its newest column. Many small files are left to DuckLake, whose
-- statistics tell which ones to open. Inlined rows are a table of the catalog; there is one for each
-- set of columns that the table has had, and none of it counts once there is a file.
WITH tables AS (
    SELECT
        t.table_id,
        t.table_name,
        CASE WHEN s.path_is_relative THEN s.path ELSE '' END || t.path AS folder,
        t.begin_snapshot,
        stats.record_count
    FROM __ducklake_metadata_lake.ducklake_table AS t
    JOIN __ducklake_metadata_lake.ducklake_schema AS s USING (schema_id)
    JOIN __ducklake_metadata_lake.ducklake_table_stats AS stats USING (table_id)
    WHERE stats.record_count > 0
),
columns AS (
    SELECT
        table_id,
        list(column_name) FILTER (WHERE begin_snapshot <= $snapshot) AS names,
        max(begin_snapshot) AS since
    FROM __ducklake_metadata_lake.ducklake_column
    WHERE parent_column IS NULL
    GROUP BY table_id
),
files AS (
    SELECT
        table_id,
        list(path ORDER BY data_file_id) AS paths,
        sum(record_count) AS records,
        sum(file_size_bytes) AS bytes,
        min(begin_snapshot) AS oldest,
        bool_and(
            path_is_relative
            AND end_snapshot IS NULL
            AND mapping_id IS NULL
            -- A merged file begins at its oldest row and may go beyond the snapshot.
            AND coalesce(partial_max, begin_snapshot) <= $snapshot
        ) AS plain
    FROM __ducklake_metadata_lake.ducklake_data_file
    WHERE begin_snapshot <= $snapshot
    GROUP BY table_id
),
inlined AS (
    SELECT table_id, any_value(table_name) AS inlined
    FROM __ducklake_metadata_lake.ducklake_inlined_data_tables
    GROUP BY table_id
    HAVING count(*) = 1
)
SELECT
    tables.table_name,
    columns.names,
    CASE
        WHEN files.plain
            AND files.records = tables.record_count
            AND files.oldest >= columns.since
            AND len(files.paths) <= 64
        THEN [tables.folder || path FOR path IN files.paths]
    END AS files,
    CASE WHEN files.paths IS NULL AND columns.since = tables.begin_snapshot THEN inlined END
        AS inlined,
    tables.record_count,
    coalesce(files.bytes, 0)::BIGINT AS bytes
FROM tables
JOIN columns USING (table_id)
LEFT JOIN files USING (table_id)
LEFT JOIN inlined USING (table_id)
WHERE len(columns.names) > 0
