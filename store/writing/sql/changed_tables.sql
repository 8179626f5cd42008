-- One row per table that got rows after a snapshot, with how many snapshots there are since, and how
-- many of these deleted rows; the table of lakes always.
WITH later AS (
    SELECT changes FROM ducklake_snapshots('lake') WHERE snapshot_id > $since
), ids AS (
    SELECT unnest(list_concat(changes['tables_inserted_into'], changes['inlined_insert']))
    FROM later
)
SELECT
    table_name,
    (SELECT count(*) FROM later),
    (SELECT count(*) FROM later WHERE len(changes['tables_deleted_from']) > 0)
FROM ducklake_table_info('lake')
WHERE table_id::VARCHAR IN (FROM ids) OR table_name = 'lakes'
