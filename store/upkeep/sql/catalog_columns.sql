-- One row per column of DuckLake's own tables: table, column, type.
SELECT table_name, column_name, data_type
FROM duckdb_columns()
WHERE database_name = 'catalog' AND schema_name = $schema AND starts_with(table_name, 'ducklake_')
ORDER BY table_name, column_index
