-- Rows added
-- Rows by table of the commits in between.
-- Empty: Nothing was added in between. `store import starter` adds tasks and kernels.
SELECT counts."key" AS "table", sum(CAST(counts."value" AS BIGINT))::BIGINT AS "rows"
FROM commits, json_each(commits.row_counts) AS counts
WHERE commits.snapshot_id > $a AND commits.snapshot_id <= $b
GROUP BY counts."key"
HAVING "rows" > 0
ORDER BY "rows" DESC, "table"
