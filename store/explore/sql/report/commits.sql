-- Who wrote what
-- One row per command that committed rows, with the number of its commits and the rows it added.
-- Empty: Nothing is committed yet: store import SOURCE.
SELECT
    author,
    count(*) AS commits,
    sum(list_sum(map_values(row_counts::JSON::MAP(VARCHAR, BIGINT))))::BIGINT AS "rows added",
    min(committed_at) AS first,
    max(committed_at) AS last
FROM ingest_log
GROUP BY author
ORDER BY first, author
LIMIT 40
