-- One row per column of the tables of inlined rows: table, column, type as DuckLake names it.
SELECT t.table_name, c.column_name, any_value(c.column_type) AS column_type
FROM catalog.ducklake_inlined_data_tables AS t
JOIN catalog.ducklake_column AS c USING (table_id)
WHERE c.parent_column IS NULL
GROUP BY ALL
