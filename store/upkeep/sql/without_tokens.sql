-- Removes the token rows of all snapshots from a copy of a catalog in SQLite, and notes how many
-- the newest snapshot had. Rows of this table are never inlined.
CREATE TEMP TABLE left_out AS
SELECT f.data_file_id, CASE WHEN f.end_snapshot IS NULL THEN f.record_count ELSE 0 END AS rows
FROM ducklake_data_file AS f JOIN ducklake_table AS t USING (table_id)
WHERE t.table_name = 'rollout_tokens';
INSERT INTO ducklake_metadata ("key", "value")
SELECT 'flywheel_tokens_left_out', sum(rows) FROM left_out HAVING sum(rows) > 0;
DELETE FROM ducklake_data_file WHERE data_file_id IN (SELECT data_file_id FROM left_out);
DELETE FROM ducklake_file_column_stats WHERE data_file_id IN (SELECT data_file_id FROM left_out);
UPDATE ducklake_table_stats SET record_count = 0, file_size_bytes = 0 WHERE table_id IN (
    SELECT table_id FROM ducklake_table WHERE table_name = 'rollout_tokens'
);
