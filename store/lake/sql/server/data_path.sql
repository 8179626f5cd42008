-- Where the data files are.
SELECT value FROM {schema}.ducklake_metadata WHERE key = 'data_path' AND scope IS NULL
