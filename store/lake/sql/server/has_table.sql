-- Whether the schema has a table.
SELECT count(*) > 0 FROM pg_tables WHERE schemaname = %(schema)s AND tablename = %(table)s
